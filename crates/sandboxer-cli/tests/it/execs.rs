//! Commands inside: codes, streams, input, signals, time-outs, background.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Home, Ran, eventually, noise};

#[test]
fn codes_are_those_of_shells() {
    let home = Home::new();
    let id = home.create();
    let sh = |script: &str| home.run(["exec", &id, "--", "sh", "-c", script]).code;
    assert_eq!(sh("exit 0"), Some(0));
    assert_eq!(sh("exit 3"), Some(3));
    assert_eq!(sh("exit 255"), Some(255));
    assert_eq!(sh("kill -9 $$"), Some(137));
    assert_eq!(sh("kill -15 $$"), Some(143));
    home.run(["exec", &id, "--", "no-such-command"]).exits(127);
    home.run(["exec", &id, "--", "/etc/passwd"]).exits(126);
    home.run(["exec", &id, "--", ""]).exits(2);
}

#[test]
fn streams_stay_apart_and_the_dashes_may_be_left_out() {
    let home = Home::new();
    let id = home.create();
    let ran = home.run(["exec", &id, "sh", "-c", "echo out; echo err >&2"]).exits(0);
    assert_eq!((&*ran.stdout, &*ran.stderr), (&b"out\n"[..], "err\n"));
    assert_eq!(home.run(["exec", &id, "echo", "--json", "-t"]).ok(), "--json -t\n");
}

#[test]
fn settings_of_a_command() {
    let home = Home::new();
    let id = home.create();
    let ran = home.run(["exec", "--cwd", "/tmp", "--env", "A=1=2", &id, "--", "sh", "-c", "pwd; echo $A"]);
    assert_eq!(ran.ok(), "/tmp\n1=2\n");
    home.run(["exec", "--cwd", "/no/such/place", &id, "--", "true"]).code.filter(|code| *code != 0).unwrap();
    home.run(["exec", "--env", "1A=x", &id, "--", "true"]).exits(2);
    home.run(["exec", "--env", "NOT_SET_ANYWHERE", &id, "--", "true"]).exits(2).says("is not set here");
    home.run(["exec", "--timeout", "0s", &id, "--", "true"]).exits(2);
}

#[test]
fn input_only_when_asked_for() {
    let home = Home::new();
    let id = home.create();
    assert_eq!(home.feed(["exec", "-i", &id, "--", "cat"], b"hello\n\xff").stdout, b"hello\n\xff");
    assert_eq!(home.feed(["exec", &id, "--", "cat"], b"hello").stdout, b"");
    assert_eq!(home.feed(["exec", "-i", &id, "--", "true"], &noise(1 << 20)).code, Some(0));
    assert_eq!(home.feed(["exec", "-i", &id, "--", "wc", "-c"], b"").ok().trim(), "0");
}

#[test]
fn ten_megabytes_pass_unchanged_both_ways() {
    let home = Home::new();
    let id = home.create();
    let data = noise(10 << 20);
    let ran = home.feed(["exec", "-i", &id, "--", "cat"], &data);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout == data, "{} of {} bytes, or others", ran.stdout.len(), data.len());
}

#[test]
fn a_time_out_ends_the_whole_tree() {
    let home = Home::new();
    let id = home.create();
    let started = Instant::now();
    let script = "trap '' TERM; (sleep 60 & sleep 60) & sleep 60";
    home.run(["exec", "--timeout", "500ms", &id, "--", "sh", "-c", script])
        .exits(124)
        .says("timed out after 500ms");
    assert!(started.elapsed() < Duration::from_secs(10));
    let left = home.run(["exec", &id, "--", "sh", "-c", "cat /proc/[0-9]*/comm"]).ok();
    assert!(!left.contains("sleep"), "{left}");
    let told = home.run(["exec", "--json", "--timeout", "300ms", &id, "--", "sleep", "9"]).exits(124).json();
    assert_eq!((&told["timed_out"], &told["exit_code"]), (&true.into(), &124.into()));
}

#[test]
fn one_document_with_a_bound() {
    let home = Home::new();
    let id = home.create();
    let told =
        home.run(["exec", "--json", &id, "--", "sh", "-c", "echo a; echo b >&2; exit 5"]).exits(5).json();
    assert_eq!(
        (&told["stdout"], &told["stderr"], &told["exit_code"]),
        (&"a\n".into(), &"b\n".into(), &5.into())
    );
    assert!(told["exec_id"].as_str().unwrap().starts_with("exe_") && told["duration_ms"].is_u64());
    let told =
        home.run(["exec", "--json", &id, "--", "sh", "-c", "printf '\\377'; yes | head -c 5000000"]).json();
    let text = told["stdout"].as_str().unwrap();
    assert_eq!(told["truncated"], true);
    assert!(text.len() < 1_100_000 && text.contains("bytes cut") && text.starts_with('\u{fffd}'));
}

#[test]
fn an_interrupt_reaches_the_command() {
    let home = Home::new();
    let id = home.create();
    let script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done";
    let mut command = home.command(["exec", &id, "--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0_u8; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran = Ran::of(child.wait_with_output().unwrap()).exits(9);
    assert_eq!(ran.stdout, b"caught\n");
}

#[test]
fn a_command_that_ignores_interrupts_is_ended_by_the_third() {
    let home = Home::new();
    let id = home.create();
    let script = "trap '' INT TERM; echo ready; while :; do sleep 0.05; done";
    let mut command = home.command(["exec", &id, "--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0_u8; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    for _ in 0..3 {
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        std::thread::sleep(Duration::from_millis(200));
    }
    Ran::of(child.wait_with_output().unwrap()).exits(137);
}

#[test]
fn a_client_that_is_killed_takes_its_command_along() {
    let home = Home::new();
    let id = home.create();
    let mut command = home.command(["exec", &id, "--", "sh", "-c", "echo ready; exec sleep 3456"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0_u8; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the command is gone", || {
        !home
            .run(["exec", &id, "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])
            .ok()
            .contains("sleep 3456")
    });
}

#[test]
fn a_reader_that_leaves_ends_the_command_quietly() {
    let home = Home::new();
    let id = home.create();
    let mut command = home.command(["exec", &id, "--", "yes"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0_u8; 2];
    let mut stdout = child.stdout.take().unwrap();
    std::io::Read::read_exact(&mut stdout, &mut first).unwrap();
    drop(stdout);
    let ran = Ran::of(child.wait_with_output().unwrap()).exits(141);
    assert_eq!(ran.stderr, "");
}

#[test]
fn background_execs_keep_their_output() {
    let home = Home::new();
    let id = home.create();
    home.run(["logs", &id]).exits(3).says("--background");
    let script = "echo one; echo two >&2; sleep 0.5; echo three";
    let exec = home.run(["exec", "-d", &id, "--", "sh", "-c", script]).ok().trim().to_owned();
    assert!(exec.starts_with("exe_"));
    let ran = home.run(["logs", "-f", &id]).exits(0);
    assert_eq!((&*ran.stdout, &*ran.stderr), (&b"one\nthree\n"[..], "two\n"));
    let ran = home.run(["logs", "--stderr", &id, &exec]).exits(0);
    assert_eq!((&*ran.stdout, &*ran.stderr), (&b""[..], "two\n"));
    let listed = home.run(["logs", "--list", &id]).ok();
    assert!(listed.contains(&exec) && listed.contains("exited 0"), "{listed}");
    let lines = home.run(["logs", "--json", &id]).ok();
    let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!((&last["type"], &last["exit_code"]), (&"exit".into(), &0.into()));
    home.run(["logs", &id, "exe_00000000000000000000000000"]).exits(3);
    home.run(["exec", "-d", "-t", &id, "--", "true"]).exits(2);
}

#[test]
fn a_background_child_does_not_hold_the_exec_open() {
    let home = Home::new();
    let id = home.create();
    let started = Instant::now();
    assert_eq!(home.run(["exec", &id, "--", "sh", "-c", "sleep 30 & echo done"]).ok(), "done\n");
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn many_at_once() {
    let home = Home::new();
    let id = home.create();
    let ran: Vec<Ran> = std::thread::scope(|scope| {
        let spawn = |n: usize| {
            let (home, id) = (&home, &id);
            scope.spawn(move || home.run(["exec", id, "--", "sh", "-c", &format!("echo {n}; exit {n}")]))
        };
        let running: Vec<_> = (0..20).map(spawn).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (n, ran) in ran.into_iter().enumerate() {
        assert_eq!(ran.exits(n as i32).stdout, format!("{n}\n").as_bytes());
    }
}
