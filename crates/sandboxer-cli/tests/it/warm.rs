//! The warm pool of a server: what is handed out is like any other sandbox, and what is not ends with the server.

use std::path::Path;

use crate::support::{Home, eventually};

/// Folders of sandboxes, by whether they were made in advance.
fn folders(home: &Home) -> (usize, usize) {
    let entries = std::fs::read_dir(home.state().join("sandboxes")).into_iter().flatten().flatten();
    let names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let warm = names.iter().filter(|name| name.starts_with("warm-")).count();
    (warm, names.len() - warm)
}

/// How many processes hold something of this home.
fn holders(home: &Path) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let holds = |entry: &std::fs::DirEntry| {
        let descriptors = std::fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        descriptors.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|link| link.starts_with(home))
    };
    processes.filter(holds).count()
}

#[test]
fn a_warm_sandbox_is_like_any_other() {
    let home = Home::served();
    let create = ["create", "--profile", "profile.agent-dev", "--json", "--env", "MARK=mine", "--ttl", "20m"];
    let first = home.run(create).exits(0).json();
    eventually("the pool", || folders(&home).0 == 4);
    let second = home.run(create).exits(0).json();
    assert_eq!(first["isolation"], second["isolation"], "enforced the same");
    for made in [&first, &second] {
        let id = made["sandbox_id"].as_str().unwrap();
        let said = home.run(["exec", id, "--", "sh", "-c", "echo $MARK; hostname; pwd"]).ok();
        assert_eq!(said.trim_end(), "mine\nsandbox\n/workspace");
        let inspected = home.run(["inspect", "sandbox", id, "--json"]).exits(0).json();
        assert_eq!(inspected["backend"]["detail"]["enforced"]["verified"], true);
        assert_eq!(inspected["backend"]["detail"]["id"], id);
        home.run(["exec", id, "-d", "--", "echo", "kept"]).exits(0);
        eventually("the log", || home.run(["logs", id]).ok().trim_end() == "kept");
    }
    let id = second["sandbox_id"].as_str().unwrap();
    home.run(["destroy", id]).exits(0);
    assert!(!home.state().join("sandboxes").join(id).exists());
}

#[test]
fn another_shape_and_the_end_of_the_server_leave_nothing() {
    let mut home = Home::served();
    home.run(["create", "--profile", "profile.agent-dev"]).exits(0);
    eventually("the pool", || folders(&home).0 == 4);
    home.run(["create", "--profile", "profile.build"]).exits(0);
    eventually("the change of the pool", || folders(&home) == (4, 2));
    home.kill_server();
    eventually("the end of the pool", || folders(&home).0 == 0);
    assert_eq!(folders(&home).1, 2, "what was handed out lives on");
    home.run(["destroy", "--all", "--yes"]).exits(0);
    eventually("the end of all", || folders(&home).1 == 0 && holders(home.path()) == 0);
}

#[test]
fn the_size_is_a_setting() {
    let home = Home::new();
    for size in ["-1", "65", "many"] {
        let mut command = home.bare();
        command.args(["serve", "--listen", "127.0.0.1:0"]).env("SANDBOXER_WARM", size);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{size}");
    }
}
