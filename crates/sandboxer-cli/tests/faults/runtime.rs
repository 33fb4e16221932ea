//! The native runtime's own processes: launcher, supervisor and init die between any two of their steps.

use std::time::{Duration, Instant};

use crate::left::{entries, eventually, processes};
use crate::rig::{Home, each, group};
use crate::{finish, points::Point};

pub(crate) fn points() -> Vec<Point> {
    sandboxer_runtime::fault::POINTS.to_vec()
}

/// What a server makes in advance.
const POOL: usize = 4;
const CREATE: [&str; 5] = ["create", "--profile", "profile.agent-dev", "--ttl", "10m"];

fn of(groups: &[&str]) -> Vec<Point> {
    points().into_iter().filter(|point| groups.contains(&group(point))).collect()
}

#[test]
fn every_point_of_a_launch() {
    each(of(&["launcher", "launch", "init"]), |point| {
        let home = Home::new();
        let made = home.run(Some(point), &CREATE);
        assert!(!made.status.success(), "the create passed {point} by");
        finish(&home, point);
        // And the machine still works.
        home.ok(&CREATE);
        finish(&home, point);
    });
}

#[test]
fn every_point_of_an_end_by_hand() {
    each(of(&["stop"]), |point| {
        let home = Home::new();
        let made = home.run(Some(point), &CREATE);
        assert!(made.status.success(), "{point}: {}", String::from_utf8_lossy(&made.stderr));
        let id = String::from_utf8(made.stdout).unwrap();
        // The supervisor dies, or whoever finishes its work.
        home.run(Some(point), &["destroy", id.trim()]);
        finish(&home, point);
        home.ok(&CREATE);
        finish(&home, point);
    });
}

/// A server makes some in advance; one of them dies while it becomes somebody's.
#[test]
fn every_point_of_an_adoption() {
    each(of(&["adopt"]), |point| {
        let home = Home::new();
        let (server, url) = home.serve(Some(point));
        let create = [&CREATE[..], &["--server", &url]].concat();
        home.ok(&create);
        let warm = || entries(&home, "sandboxes").iter().filter(|name| name.starts_with("warm-")).count();
        eventually("the pool", || warm() == POOL);
        let before = processes(home.path());
        // It is made in the ordinary way then.
        home.ok(&create);
        let after = processes(home.path());
        assert!(before.iter().any(|process| !after.contains(process)), "the adoption passed {point} by");
        drop(server);
        finish(&home, point);
    });
}

/// The supervisor alone ends a sandbox whose time is over; killed while it does so, the next look finishes its work.
#[test]
fn every_point_of_an_end_by_ttl() {
    each(of(&["stop"]), |point| {
        let home = Home::new();
        // Long enough for the create on a busy machine: the point must end the supervisor, not the command.
        let made = home.run(Some(point), &["create", "--profile", "profile.agent-dev", "--ttl", "5s"]);
        assert!(made.status.success(), "{point}: {}", String::from_utf8_lossy(&made.stderr));
        let deadline = Instant::now() + Duration::from_secs(20);
        while !processes(home.path()).is_empty() {
            assert!(Instant::now() < deadline, "{point}: still alive: {:?}", processes(home.path()));
            std::thread::sleep(Duration::from_millis(50));
        }
        let is_left = !entries(&home, "sandboxes").is_empty();
        assert_eq!(is_left, point != "runtime.stop.after_remove", "the supervisor passed {point} by");
        let row = &home.rows()[0];
        let ended = (row["state"].as_str(), row["reason"].as_str());
        assert_eq!(ended, (Some("destroyed"), Some("ttl")), "{point}");
        finish(&home, point);
    });
}
