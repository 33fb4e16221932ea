//! The sync of a mirrored folder, asked for or as the last thing before the end.

use std::path::Path;

use crate::left::eventually;
use crate::rig::{Home, each, of_engine};
use crate::{finish, points::Point};

pub(crate) fn points() -> Vec<Point> {
    of_engine(&["sync"])
}

#[test]
fn every_point_of_a_sync() {
    each(points(), |point| {
        let (home, id) = changed_on_both_sides();
        home.dies(point, &["sync", &id]);
        home.ok(&["sync", &id]);
        let inside = home.ok(&["exec", &id, "--", "sh", "-c", "find . -type f | sort"]);
        assert_eq!(inside, "./inside\n./outside", "{point}");
        finish(&home, point);
        assert_merged(&home, point);
    });
}

/// A destroy that dies in its last sync has ended nothing: the sandbox lives, and so does what it costs.
#[test]
fn every_point_of_the_last_sync() {
    each(points(), |point| {
        let (home, id) = changed_on_both_sides();
        home.dies(point, &["destroy", &id]);
        assert_eq!(home.json(&["get", &id])["state"], "active", "{point}");
        home.ok(&["destroy", &id]);
        finish(&home, point);
        assert_merged(&home, point);
    });
}

/// A mirror with a new file and a removed one on either side.
fn changed_on_both_sides() -> (Home, String) {
    let home = Home::new();
    home.write("project/README", "read me\n");
    home.write("project/main.sh", "true\n");
    let mirror = ["--workspace", "project", "--workspace-mode", "mirror"];
    let create = [&["create", "--profile", "profile.agent-dev", "--ttl", "10m"], &mirror[..]].concat();
    let id = home.ok(&create);
    // In the background: no sync follows.
    home.ok(&["exec", &id, "--background", "--", "sh", "-c", "echo in > inside; rm README; touch /tmp/done"]);
    eventually("the change inside", || {
        home.run(None, &["cp", &format!("{id}:/tmp/done"), "-"]).status.success()
    });
    home.write("project/outside", "out\n");
    std::fs::remove_file(home.path().join("project/main.sh")).unwrap();
    (home, id)
}

fn assert_merged(home: &Home, point: &str) {
    let names = std::fs::read_dir(home.path().join("project")).unwrap().flatten();
    let mut names: Vec<String> =
        names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, ["inside", "outside"], "{point}");
    let read =
        |name: &str| std::fs::read_to_string(Path::new(&home.path().join("project")).join(name)).unwrap();
    assert_eq!((read("inside").as_str(), read("outside").as_str()), ("in\n", "out\n"), "{point}");
}
