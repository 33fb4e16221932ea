//! Pause, resume, snapshot and fork of a sandbox that costs something, on a real engine.

use sandboxer_core::Money;
use sandboxer_testkit::real::{self, dockerd::Dockerd};

use crate::books::intervals;
use crate::rig::{Home, each, group, of_engine};
use crate::{finish, points::Point};

const IMAGE: &str = "sandboxer-test/busybox";

pub(crate) fn points() -> Vec<Point> {
    of_engine(&["pause", "resume", "snapshot", "snapshot_delete", "fork"])
}

#[test]
fn every_point_of_a_checkpoint() {
    let Some(engine) = real::require(Dockerd::start()) else { return };
    engine.import_busybox(IMAGE).unwrap();
    each(points(), |point| {
        let home = Home::new().with("DOCKER_HOST", engine.docker_host());
        home.profile("boxed", &format!("extends: profile.docker-dev\nimage: {IMAGE}\n"));
        die_at(&home, point);
    });
    // Snapshots whose taker died have no name that a test could know: there is none of anybody.
    let lists: [&[&str]; 3] = [
        &["ps", "--all", "--format", "{{.Names}}"],
        &["volume", "ls", "--format", "{{.Name}}"],
        &["images", "--all", "--format", "{{.Repository}}:{{.Tag}}"],
    ];
    for list in lists {
        let found = engine.run(list).unwrap();
        let ours: Vec<&str> =
            found.lines().filter(|name| name.contains("sbx_") || name.contains("snp_")).collect();
        assert_eq!(ours, Vec::<&str>::new(), "{list:?}");
    }
}

fn die_at(home: &Home, point: &str) {
    let id = &home.ok(&["create", "--profile", "profile.boxed", "--ttl", "10m"]);
    let mut phases = vec!["running"];
    match group(point) {
        "pause" => {
            home.dies(point, &["pause", id]);
            // Who was not told that it is paused finds it running.
            let is_paused = point == "engine.pause.after_paused";
            assert_state(home, id, if is_paused { "paused" } else { "ready" }, point);
            home.ok(&["pause", id]);
            home.ok(&["resume", id]);
            phases.extend(["paused", "running"]);
        }
        "resume" => {
            home.ok(&["pause", id]);
            let before = held(home);
            home.price("ext.docker", 2);
            home.dies(point, &["resume", id]);
            // What it costs more is set aside before it goes on.
            assert_eq!(held(home) > before, point != "engine.resume.after_intent", "{point}");
            let is_paused = point != "engine.resume.after_resumed";
            assert_state(home, id, if is_paused { "paused" } else { "ready" }, point);
            home.ok(&["resume", id]);
            phases.extend(["paused", "running"]);
        }
        "snapshot" => {
            home.dies(point, &["snapshot", id]);
            let is_taken = point == "engine.snapshot.after_taken";
            assert_eq!(snapshots(home).len(), usize::from(is_taken), "{point}");
            home.ok(&["snapshot", id]);
        }
        "snapshot_delete" => {
            let snapshot = home.ok(&["snapshot", id]);
            home.dies(point, &["snapshots", "delete", &snapshot]);
            assert_eq!(snapshots(home), Vec::<String>::new(), "{point}: what was begun is finished");
        }
        "fork" => {
            home.dies(point, &["fork", id, "--count", "2"]);
            let made = if point == "engine.fork.after_restores" { 3 } else { 1 };
            assert_eq!(home.living().len(), made, "{point}");
            home.ok(&["fork", id]);
        }
        other => panic!("no command for {other}"),
    }
    home.ok(&["exec", id, "--", "true"]);
    let told = &intervals(home)[id];
    assert!(told.iter().map(|interval| &interval.phase).eq(phases.iter()), "{point}: {told:#?}");
    home.ok(&["destroy", "--all", "--yes"]);
    for snapshot in snapshots(home) {
        home.ok(&["snapshots", "delete", &snapshot]);
    }
    finish(home, point);
}

fn assert_state(home: &Home, id: &str, state: &str, point: &str) {
    assert_eq!(home.json(&["get", id])["state"], state, "{point}");
}

fn held(home: &Home) -> Money {
    home.json(&["credits", "show"])["accounts"][0]["held"].as_str().unwrap().parse().unwrap()
}

/// Those that are there after somebody looked.
fn snapshots(home: &Home) -> Vec<String> {
    home.ok(&["list"]);
    let listed = home.json(&["snapshots", "list"]);
    let ids = listed["items"].as_array().unwrap().iter();
    ids.map(|one| one["snapshot_id"].as_str().unwrap().to_owned()).collect()
}
