//! Signals to commands of ours, and outputs that go away.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Home, Ran, eventually};

const SLOW: &str =
    "id: profile.slow\nversion: \"1.0.0\"\nextends: profile.base\nsetup: { commands: [\"sleep 30\"] }\n";

fn interrupt_a_slow_create(home: &Home, signal: Signal, times: u32) {
    let mut command = home.command(["create", "--profile", "profile.slow"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the create is under way", || {
        home.run(["list", "--json"]).json()["items"].as_array().is_some_and(|items| !items.is_empty())
    });
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..times {
        let _ = kill_process(Pid::from_child(&child), signal);
        std::thread::sleep(Duration::from_millis(20));
    }
    let ran = Ran::of(child.wait_with_output().unwrap()).exits(130).says("cancelled");
    assert_eq!(ran.stdout, b"", "no id of something that is not there");
    eventually("nothing is left", || {
        let listed = home.run(["list", "--json", "--all"]).json();
        let items = listed["items"].as_array().unwrap();
        items.len() == 1 && items[0]["state"] == "destroyed" && items[0]["reason"] == "cancelled"
    });
    let id =
        home.run(["list", "--json", "--all"]).json()["items"][0]["sandbox_id"].as_str().unwrap().to_owned();
    assert!(!mentions(&home.state(), &id), "something of {id} is left in the home");
}

/// Whether anything below is named after the sandbox.
fn mentions(folder: &std::path::Path, id: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        entry.file_name().to_string_lossy().contains(id) || (is_dir && mentions(&entry.path(), id))
    })
}

#[test]
fn an_interrupted_create_leaves_nothing() {
    for (signal, times) in [(Signal::INT, 1), (Signal::TERM, 1), (Signal::HUP, 1), (Signal::INT, 5)] {
        let home = Home::new();
        home.profile("slow", SLOW);
        interrupt_a_slow_create(&home, signal, times);
    }
}

#[test]
fn an_interrupted_create_through_a_server_leaves_nothing() {
    let home = Home::new();
    home.profile("slow", SLOW);
    let server = home.serve();
    let mut command = home.command(["create", "--profile", "profile.slow", "--server", &server.url]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the create is under way", || {
        let listed = home.run(["list", "--json", "--server", &server.url]).json();
        listed["items"].as_array().is_some_and(|items| !items.is_empty())
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    Ran::of(child.wait_with_output().unwrap()).exits(130);
    eventually("the server removed it", || {
        let listed = home.run(["list", "--json", "--all", "--server", &server.url]).json();
        listed["items"][0]["state"] == "destroyed"
    });
}

#[test]
fn a_failing_setup_says_why_and_leaves_nothing() {
    let home = Home::new();
    home.profile(
        "broken",
        "id: profile.broken\nversion: \"1.0.0\"\nextends: profile.base\nsetup: { commands: [\"echo oh no >&2; exit 4\"] }\n",
    );
    home.run(["create", "--profile", "profile.broken"]).exits(1).says("oh no");
    assert_eq!(home.run(["list", "--json", "--all"]).json()["items"][0]["state"], "destroyed");
}

#[test]
fn a_pipe_that_closes_is_no_error() {
    let home = Home::new();
    for _ in 0..3 {
        home.create();
    }
    for args in [["list", "--json"], ["events", "--json"], ["profiles", "list"], ["completions", "zsh"]] {
        let mut child = home.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ran = Ran::of(child.wait_with_output().unwrap()).exits(0);
        assert_eq!(ran.stderr, "", "{args:?}");
    }
}

#[test]
fn a_full_output_is_an_error() {
    let home = Home::new();
    home.create();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = home.command(["list", "--json"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    Ran::of(output).exits(1).says("cannot be written to stdout");
}

#[test]
fn a_server_ends_in_order() {
    let home = Home::new();
    let mut command = home.bare();
    command.args(["serve", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut told = String::new();
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    while !told.contains("serving on http://127.0.0.1:") {
        assert!(std::io::BufRead::read_line(&mut stderr, &mut told).unwrap() > 0, "{told}");
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    home.run(["serve", "--listen", "0.0.0.0:0"]).exits(5).says("API key");
}
