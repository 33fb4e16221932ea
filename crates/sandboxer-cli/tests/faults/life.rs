//! Create, longer life and destroy, on this machine and at a provider.

use crate::rig::{Home, each, group, of_engine};
use crate::{finish, points::Point};

pub(crate) fn points() -> Vec<Point> {
    of_engine(&["create", "extend", "destroy"])
}

#[test]
fn every_point_of_a_life_here() {
    each(points(), |point| die_at(point, "profile.agent-dev", Home::dies));
}

#[test]
fn every_point_of_a_life_at_a_provider() {
    each(points(), |point| die_at(point, "profile.saas-stub", Home::dies));
}

#[test]
fn every_point_of_a_life_in_a_server() {
    each(points(), |point| die_at(point, "profile.saas-stub", Home::server_dies));
}

fn die_at(point: &str, profile: &str, dies: fn(&Home, &str, &[&str])) {
    let home = Home::new();
    home.write("project/README", "what the workspace starts with\n");
    let create = ["create", "--profile", profile, "--ttl", "10m", "--idempotency-key", "one"];
    let workspace = ["--workspace", "project", "--workspace-mode", "remote-canonical"];
    let create = [&create[..], &workspace].concat();
    match group(point) {
        "create" => {
            dies(&home, point, &create);
            let before = home.living();
            let has_answer = point == "engine.create.after_ready";
            assert_eq!(before.len(), usize::from(has_answer), "{point}: what nobody was told of is removed");
            let id = home.ok(&create);
            assert!(before.iter().all(|row| row["sandbox_id"] == id.as_str()), "{point}: {before:?}");
            assert_eq!(home.living().len(), 1, "{point}");
        }
        "extend" => {
            let id = home.ok(&create);
            let extend = ["extend-ttl", &id, "--duration", "20m"];
            dies(&home, point, &extend);
            home.ok(&extend);
        }
        "destroy" => {
            let id = home.ok(&create);
            dies(&home, point, &["destroy", &id]);
            let is_asked = point != "engine.destroy.before_intent";
            assert_eq!(home.living().is_empty(), is_asked, "{point}: what was begun is finished");
            home.ok(&["destroy", &id]);
            let events = home.json(&["events", &id]);
            for once in ["destroying", "destroyed"] {
                let name = format!("dev.sandboxer.sandbox.{once}");
                let told = events["items"].as_array().unwrap().iter().filter(|event| event["type"] == name);
                assert_eq!(told.count(), 1, "{point}: {events:#}");
            }
        }
        other => panic!("no command for {other}"),
    }
    // The same key again, whatever happened: never a second one.
    let id = home.ok(&create);
    assert!(home.living().iter().all(|row| row["sandbox_id"] == id.as_str()), "{point}");
    finish(&home, point);
}

/// The points are real, and what an interrupted create leaves is told as such.
#[test]
fn a_point_ends_the_process() {
    let home = Home::new();
    home.dies("engine.create.after_intent", &["create"]);
    let row = &home.rows()[0];
    assert_eq!((row["state"].as_str(), row["reason"].as_str()), (Some("destroyed"), Some("interrupted")));
}
