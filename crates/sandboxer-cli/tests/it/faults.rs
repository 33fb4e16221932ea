//! A home that is broken, full, read-only or not there; a configuration with mistakes; a server that is away.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::{Home, Ran};

#[test]
fn a_home_that_cannot_be_made() {
    let home = Home::new();
    home.file("state", "a file where a folder should be");
    home.run(["create"]).exits(1).says("hint: set SANDBOXER_HOME");
    let report = home.run(["doctor", "--json"]).exits(7).json();
    assert_eq!(report["ok"], false);
}

#[test]
fn a_home_that_is_read_only() {
    if !rustix::process::geteuid().is_root() {
        let home = Home::new();
        fs::create_dir(home.state()).unwrap();
        fs::set_permissions(home.state(), fs::Permissions::from_mode(0o555)).unwrap();
        refuses_to_create(&home, "");
        fs::set_permissions(home.state(), fs::Permissions::from_mode(0o755)).unwrap();
        return;
    }
    let home = Home::new();
    let _mount = Mounted::tmpfs(&home, "size=4m,ro");
    refuses_to_create(&home, "");
}

#[test]
fn a_home_that_is_full() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = Home::new();
    let _mount = Mounted::tmpfs(&home, "size=1m");
    fs::write(home.state().join("ballast"), vec![0_u8; 2 << 20]).unwrap_err();
    refuses_to_create(&home, "");
}

#[test]
fn a_store_that_is_not_one() {
    let home = Home::new();
    home.create();
    home.run(["destroy", "--all", "--yes"]).ok();
    for entry in fs::read_dir(home.state()).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("sandboxer.db") {
            fs::write(entry.path(), crate::support::noise(20_000)).unwrap();
        }
    }
    refuses_to_create(&home, "sandboxer.db");
    home.run(["doctor"]).exits(7);
}

fn refuses_to_create(home: &Home, named: &str) {
    let ran = home.run(["create"]).exits(1);
    assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains(named), "{}", ran.stderr);
    assert!(ran.stdout.is_empty() && !ran.stderr.contains("panicked"), "{}", ran.stderr);
    assert!(ran.stderr.contains("\n\nhint: "), "{}", ran.stderr);
}

/// A small file system on the home, gone with the test.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn tmpfs(home: &Home, options: &str) -> Self {
        let path = home.state();
        fs::create_dir_all(&path).unwrap();
        let done = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(&path)
            .status();
        assert!(done.unwrap().success());
        Self(path)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn the_configuration_file_is_strict() {
    let home = Home::new();
    home.file(".config/sandboxer/config.toml", "sevrer = 'http://127.0.0.1:1'\n");
    home.run(["list"]).exits(2).says("config.toml:1:1").says("hint: did you mean `server`?");
    home.file(".config/sandboxer/config.toml", "server = 'http://127.0.0.1:1'\n");
    home.run(["list"]).exits(1).says("the server cannot be reached").says("hint: start it");
    home.run(["list", "--server", ""]).ok();
    home.file(".config/sandboxer/config.toml", "server = 7\n");
    home.run(["list"]).exits(2);
    home.run(["completions", "bash"]).ok();
}

#[test]
fn places_follow_the_contract() {
    let home = Home::new();
    home.bare().arg("list").env_remove("SANDBOXER_HOME").output().unwrap();
    assert!(home.path().join(".local/share/sandboxer/sandboxer.db").exists());
    let xdg = home.path().join("xdg");
    home.bare().arg("list").env_remove("SANDBOXER_HOME").env("XDG_DATA_HOME", &xdg).output().unwrap();
    assert!(xdg.join("sandboxer/sandboxer.db").exists());
    let given = home.path().join("given");
    home.bare().arg("list").arg("--home").arg(&given).output().unwrap();
    assert_eq!(fs::metadata(&given).unwrap().permissions().mode() & 0o777, 0o700);
    let nowhere = home.bare().arg("list").env_remove("SANDBOXER_HOME").env_remove("HOME").output().unwrap();
    Ran::of(nowhere).exits(2).says("SANDBOXER_HOME");
}

#[test]
fn servers_that_are_none() {
    let home = Home::new();
    home.run(["--server", "127.0.0.1:1", "list"]).exits(2).says("http://127.0.0.1:8377");
    home.run(["--server", "http://127.0.0.1:1", "exec", "sbx_00000000000000000000000000", "--", "true"])
        .exits(1)
        .says("the server cannot be reached");
    home.run(["--server", "http://127.0.0.1:1", "doctor"]).exits(7);
    home.run(["--server", "http://127.0.0.1:1", "--api-key-file", "missing", "list"]).exits(3);
}

#[test]
fn a_key_opens_the_server_and_an_agent_sees_its_own() {
    let home = Home::served();
    let admin = home.run(["keys", "create", "--name", "admin"]).ok();
    home.run(["list"]).exits(5).says("hint:");
    home.file("admin.key", &admin);
    let agent =
        home.run(["keys", "create", "--name", "agent", "--actor", "agt", "--api-key-file", "admin.key"]).ok();
    let as_agent = |args: &[&str]| {
        let mut command = home.command([]);
        Ran::of(command.args(args).env("SANDBOXER_API_KEY", agent.trim()).output().unwrap())
    };
    let mine = as_agent(&["create", "--ttl", "5m"]).ok().trim().to_owned();
    let others = home.run(["create", "--ttl", "5m", "--api-key-file", "admin.key"]).ok().trim().to_owned();
    assert!(as_agent(&["list"]).ok().contains(&mine));
    as_agent(&["get", &others]).exits(3);
    as_agent(&["exec", &others, "--", "true"]).exits(3);
    as_agent(&["keys", "list"]).exits(5);
    assert_eq!(as_agent(&["exec", &mine, "--", "echo", "hi"]).ok(), "hi\n");
}
