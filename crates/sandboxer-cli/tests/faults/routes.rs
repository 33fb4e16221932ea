//! Two places for one sandbox: the one that fails is left for the next, and the slower of two goes.

use crate::left::{entries, eventually};
use crate::rig::{Home, each, of_engine};
use crate::{finish, points::Point};

const PROFILE: &str = "extends: profile.agent-dev\nextension: ext.saas-stub\nroute: { strategy: explicit, fallback: [ext.native] }\n";
const CREATE: [&str; 7] = ["create", "--profile", "profile.two", "--ttl", "10m", "--idempotency-key", "one"];

pub(crate) fn points() -> Vec<Point> {
    of_engine(&["reroute", "hedge"])
}

fn home() -> Home {
    let home = Home::new();
    home.profile("two", PROFILE);
    home
}

/// The first place made it and said that it broke; the second keeps its word.
#[test]
fn every_point_of_the_way_to_the_next_offer() {
    each(of_engine(&["reroute"]), |point| {
        let home = home();
        let create = [&CREATE[..], &["--input", "stub=create=500-after"]].concat();
        home.dies(point, &create);
        assert_eq!(entries(&home, "saas-stub/sandboxes"), Vec::<String>::new(), "{point}");
        assert_eq!(
            entries(&home, "saas-stub/ended").len(),
            1,
            "{point}: the first try was there for a while"
        );
        one_after(&home, point, &create);
    });
}

/// The provider made it and did not answer: what is found there is taken over, by a process that dies on the way.
#[test]
fn every_point_of_a_takeover() {
    let points = ["after_provision", "after_probe", "after_setup", "after_ready"];
    each(points.map(|name| format!("engine.create.{name}")).to_vec(), |point| {
        let home = home();
        let create = [&CREATE[..], &["--input", "stub=create=timeout-after,hang=300ms"]].concat();
        home.dies(&point, &create);
        assert_eq!(entries(&home, "saas-stub/sandboxes").len(), 1, "{point}: it is there");
        let before = home.living();
        assert_eq!(before.len(), usize::from(point.ends_with("after_ready")), "{point}");
        let id = home.ok(&create);
        assert!(before.iter().all(|row| row["sandbox_id"] == id.as_str()), "{point}: {before:?}");
        let living = home.living();
        assert_eq!((living.len(), &living[0]["extension"]), (1, &"ext.saas-stub".into()), "{point}");
        finish(&home, &point);
    });
}

/// The first place is slow, so that a second one is asked, which is quicker.
#[test]
fn every_point_of_a_choice_of_two() {
    each(of_engine(&["hedge"]), |point| {
        let home = home();
        if point == "engine.hedge.after_teardown" {
            return die_after_the_answer(&home, point);
        }
        let slow = ["--hedge=1500ms", "--input", "stub=ready_latency=40s"];
        let create = [&CREATE[..], &slow].concat();
        home.dies(point, &create);
        assert_eq!(entries(&home, "saas-stub/sandboxes").len(), 1, "{point}: the first one is under way");
        one_after(&home, point, &create);
    });
}

/// Whoever finds both of them dies as well, while it removes them.
#[test]
fn every_point_of_the_end_of_two() {
    each(of_engine(&["destroy"]), |point| {
        let home = home();
        let slow = ["--hedge=1500ms", "--input", "stub=ready_latency=40s"];
        let create = [&CREATE[..], &slow].concat();
        home.dies("engine.hedge.after_switch", &create);
        home.dies(point, &["list"]);
        one_after(&home, point, &create);
    });
}

/// Nobody was told of what was made before: a repeat makes one, on the second place, and only that is charged.
fn one_after(home: &Home, point: &str, create: &[&str]) {
    assert_eq!(home.living().len(), 0, "{point}");
    assert_eq!(home.rows().len(), 1, "{point}");
    let id = home.ok(create);
    assert_eq!(home.ok(create), id, "{point}");
    keeps_the_second(home, point, &id);
}

/// The slower one is removed when the answer has been given, by a server: a command would have ended by then.
fn die_after_the_answer(home: &Home, point: &str) {
    let (mut server, url) = home.serve(Some(point));
    let create = [&CREATE[..], &["--hedge=200ms", "--input", "stub=latency=3s"]].concat();
    let id = home.ok(&[&create[..], &["--server", &url]].concat());
    server.dies(point);
    assert_eq!(entries(home, "saas-stub/ended").len(), 1, "{point}: the slower one was made, and removed");
    assert_eq!(home.ok(&create), id, "{point}");
    keeps_the_second(home, point, &id);
}

fn keeps_the_second(home: &Home, point: &str, id: &str) {
    let living = home.living();
    assert_eq!(living.len(), 1, "{point}: {living:?}");
    let is_second = living[0]["sandbox_id"] == id && living[0]["extension"] == "ext.native";
    assert!(is_second && living[0]["state"] == "ready", "{point}: {living:?}");
    eventually("the slower one is gone", || home.json(&["get", id])["route"]["hedge"].is_null());
    assert_eq!(entries(home, "saas-stub/sandboxes"), Vec::<String>::new(), "{point}");
    finish(home, point);
    let paid = home.json(&["meters", "list", "--extension", "ext.saas-stub"]);
    assert_eq!(paid["items"].as_array().map(Vec::len), Some(0), "{point}: {paid:#}");
}
