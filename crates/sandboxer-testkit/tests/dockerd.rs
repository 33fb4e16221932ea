//! The engine that other tests stand on: it works, and it leaves nothing behind.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use sandboxer_testkit::real::{self, dockerd::Dockerd};

fn mentions(path: &str, what: &str) -> bool {
    std::fs::read_to_string(path).unwrap_or_default().contains(what)
}

/// Every process whose command line names this.
fn processes(what: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit()))
        .map(|entry| entry.path().join("cmdline"))
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .filter(|line| line.contains(what))
        .collect()
}

#[test]
fn it_runs_containers_publishes_ports_restarts_and_leaves_nothing() {
    let Some(engine) = real::require(Dockerd::start()) else { return };
    engine.import_busybox("busybox:test").unwrap();
    engine.run(&["network", "create", "front"]).unwrap();
    let serve = "echo hello >/tmp/index.html; exec httpd -f -p 80 -h /tmp";
    engine
        .run(&[
            "run",
            "-d",
            "--name",
            "web",
            "--network",
            "front",
            "-p",
            "127.0.0.1:18080:80",
            "busybox:test",
            "sh",
            "-c",
            serve,
        ])
        .unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    let mut said = String::new();
    while said != "hello\n" && Instant::now() < end {
        let output =
            engine.inside("busybox").args(["wget", "-qO-", "http://127.0.0.1:18080/index.html"]).output();
        said = String::from_utf8(output.unwrap().stdout).unwrap();
    }
    assert_eq!(said, "hello\n");

    engine.restart().unwrap();
    assert_eq!(engine.run(&["ps", "-a", "--format", "{{.Names}}"]).unwrap(), "web");
    engine.run(&["start", "web"]).unwrap();
    engine.crash();

    let directory = engine.socket().parent().unwrap().to_owned();
    let name = directory.file_name().unwrap().to_string_lossy().into_owned();
    drop(engine);
    assert!(!directory.exists());
    assert!(!mentions("/proc/self/mountinfo", &name));
    assert_eq!(processes(&name), Vec::<String>::new());
}
