//! kill -9 between every two steps of create and destroy: nothing is lost, nothing leaks, no row is in a wrong state, and
//! what it cost is charged once.
//!
//! Needs the feature `fault-points`, as `make test` gives it.

#![allow(clippy::unwrap_used, reason = "a helper of a test may panic like the test itself")]
#![cfg(feature = "fault-points")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

fn sandboxer(home: &Path, fault: Option<&str>, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandboxer"));
    command
        .args(arguments)
        .env("SANDBOXER_HOME", home)
        .env("SANDBOXER_PRICES", home.join("prices"))
        .env_remove("SANDBOXER_SERVER")
        .env_remove("SANDBOXER_FAULT");
    if let Some(point) = fault {
        command.env("SANDBOXER_FAULT", point);
    }
    command.output().unwrap()
}

/// A home whose sandboxes cost something, with credits for some of them.
fn home_with_money() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let prices = home.path().join("prices");
    std::fs::create_dir(&prices).unwrap();
    let price = "extension: ext.native\ncurrency: USD\nas_of: 2026-01-01\nsource: the test\nbasis: metered\n\
                 bundled: [memory]\nrates:\n  - { meter: vcpu, amount: 0.01, per: second, unit: vcpu }\n";
    std::fs::write(prices.join("native.yaml"), price).unwrap();
    let paid = sandboxer(home.path(), None, &["credits", "add", PAID_IN]);
    assert!(paid.status.success(), "{}", String::from_utf8_lossy(&paid.stderr));
    home
}

const PAID_IN: &str = "1000";

/// Nothing is held any more, the books add up, and what is gone from the balance is what the sandboxes were charged.
fn assert_charged_once(home: &Path, point: &str) {
    let json = |arguments: &[&str]| -> Value {
        let output = sandboxer(home, None, arguments);
        assert!(output.status.success(), "{point}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    assert_eq!(json(&["credits", "audit", "--json"])["wrong"], Value::Array(Vec::new()), "{point}");
    let account = &json(&["credits", "show", "--json"])["accounts"][0];
    assert_eq!(account["held"], "0.00 USD", "{point}");
    let amount = |value: &Value| value.as_str().unwrap().parse::<sandboxer_core::Money>().unwrap().nanos();
    let charged: i128 = rows(home).iter().map(|row| amount(&row["cost"]["charged"])).sum();
    let paid_in = PAID_IN.parse::<sandboxer_core::Money>().unwrap().nanos();
    assert_eq!(amount(&account["balance"]), paid_in - charged, "{point}");
    for row in rows(home).iter().filter(|row| row["ready_at"].is_null()) {
        assert_eq!(row["cost"]["charged"], "0.00 USD", "{point}: what never was ready costs nothing: {row}");
    }
}

fn rows(home: &Path) -> Vec<Value> {
    let output = sandboxer(home, None, &["list", "--all", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page: Value = serde_json::from_slice(&output.stdout).unwrap();
    page["items"].as_array().unwrap().clone()
}

/// Processes that hold or see anything of this home: supervisors by their lock, inits by their mounts.
fn processes(home: &Path) -> Vec<String> {
    let home = home.to_str().unwrap();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if pid.parse::<u32>().is_err() || pid == std::process::id().to_string() {
            continue;
        }
        let mounts = std::fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default();
        let descriptors = std::fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        let holds = descriptors
            .filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .any(|link| link.starts_with(home));
        if holds || mounts.contains(home) {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push(format!("{pid} {}", name.trim()));
        }
    }
    found
}

fn folders(home: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(home.join("sandboxes")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn cgroups(id: &str) -> Vec<String> {
    let (mut found, mut open) = (Vec::new(), vec![std::path::PathBuf::from("/sys/fs/cgroup")]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().contains(id) {
                found.push(entry.path().display().to_string());
            }
            open.push(entry.path());
        }
    }
    found
}

/// Processes end a moment after they are told to; everything else is there or it is not.
fn assert_nothing_left(home: &Path, ids: &[String], point: &str) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !processes(home).is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(processes(home), Vec::<String>::new(), "processes after {point}");
    assert_eq!(folders(home), Vec::<String>::new(), "folders after {point}");
    for id in ids {
        assert_eq!(cgroups(id), Vec::<String>::new(), "cgroups after {point}");
    }
}

/// After a restart every row is settled: usable with something behind it, or destroyed.
fn settle(home: &Path, point: &str) -> Vec<String> {
    let mut ids = Vec::new();
    for row in rows(home) {
        let (id, state) = (row["sandbox_id"].as_str().unwrap().to_owned(), row["state"].as_str().unwrap());
        assert!(["ready", "active", "destroyed"].contains(&state), "{point}: {id} is {state}");
        if state != "destroyed" {
            let run = sandboxer(home, None, &["exec", &id, "--", "true"]);
            assert!(run.status.success(), "{point}: {id} is {state} and does not answer: {run:?}");
            let gone = sandboxer(home, None, &["destroy", &id]);
            assert!(gone.status.success(), "{point}: {}", String::from_utf8_lossy(&gone.stderr));
        }
        ids.push(id);
    }
    for row in rows(home) {
        assert_eq!(row["state"], "destroyed", "{point}");
    }
    ids
}

fn die_at(point: &str) {
    let home = home_with_money();
    let home = home.path();
    let made = sandboxer(home, Some(point), &["create", "--profile", "profile.agent-dev", "--ttl", "10m"]);
    let id = String::from_utf8_lossy(&made.stdout).trim().to_owned();
    if made.status.success() {
        sandboxer(home, Some(point), &["extend-ttl", &id, "--duration", "20m"]);
        sandboxer(home, Some(point), &["destroy", &id]);
    }
    let ids = settle(home, point);
    assert_nothing_left(home, &ids, point);
    assert_charged_once(home, point);
    // And the machine still works.
    let again = sandboxer(home, None, &["create", "--profile", "profile.agent-dev"]);
    assert!(again.status.success(), "after {point}: {}", String::from_utf8_lossy(&again.stderr));
    let id = String::from_utf8_lossy(&again.stdout).trim().to_owned();
    assert!(sandboxer(home, None, &["destroy", &id]).status.success());
    assert_nothing_left(home, &[id], point);
    assert_charged_once(home, point);
}

#[test]
fn every_point_of_the_engine() {
    // Those of pausing and snapshots need a backend that has them: `it/docker.rs` dies at each on a real engine. Those
    // of syncs are in `it/workspace.rs`, those of another host in the engine's own tests.
    let on_the_way = ["engine.create.", "engine.extend.", "engine.destroy."];
    let points = sandboxer_engine::fault::POINTS.iter();
    for point in points.filter(|point| on_the_way.iter().any(|prefix| point.starts_with(prefix))) {
        die_at(point);
    }
}

#[test]
fn every_point_of_the_runtime() {
    for point in sandboxer_runtime::fault::POINTS {
        die_at(point);
    }
}

/// The supervisor alone ends a sandbox whose time is over; killed while it does so, the next look finishes its work.
#[test]
fn every_point_of_an_end_by_ttl() {
    let points = sandboxer_runtime::fault::POINTS.iter().filter(|point| point.starts_with("runtime.stop."));
    let ends: Vec<_> = points.map(|point| std::thread::spawn(|| die_at_the_end(point))).collect();
    assert!(!ends.is_empty());
    for end in ends {
        end.join().unwrap();
    }
}

fn die_at_the_end(point: &str) {
    let home = home_with_money();
    // Long enough for the create on a busy machine: the point must end the supervisor, not the command.
    let made =
        sandboxer(home.path(), Some(point), &["create", "--profile", "profile.agent-dev", "--ttl", "5s"]);
    assert!(made.status.success(), "{point}: {}", String::from_utf8_lossy(&made.stderr));
    let deadline = Instant::now() + Duration::from_secs(20);
    while !processes(home.path()).is_empty() {
        assert!(Instant::now() < deadline, "{point}: still alive: {:?}", processes(home.path()));
        std::thread::sleep(Duration::from_millis(50));
    }
    let row = &rows(home.path())[0];
    assert_eq!((row["state"].as_str(), row["reason"].as_str()), (Some("destroyed"), Some("ttl")), "{point}");
    let id = row["sandbox_id"].as_str().unwrap().to_owned();
    assert_nothing_left(home.path(), &[id], point);
    assert_charged_once(home.path(), point);
}

/// The points are real: a process that reaches one is killed there.
#[test]
fn a_point_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    let home = home_with_money();
    let made = sandboxer(home.path(), Some("engine.create.after_intent"), &["create"]);
    assert_eq!(made.status.signal(), Some(9));
    let row = &rows(home.path())[0];
    assert_eq!((row["state"].as_str(), row["reason"].as_str()), (Some("destroyed"), Some("interrupted")));
}
