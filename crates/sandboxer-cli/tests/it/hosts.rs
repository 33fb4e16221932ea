//! Hosts: real SSH servers in namespaces of their own, their keys, and what the commands say about them.

use sandboxer_testkit::real::require;
use sandboxer_testkit::real::sshd::SshHost;

use crate::support::{Home, Ran, eventually};
use crate::terminal::Screen;

/// The fingerprint of a host's key by another hand than ours.
fn fingerprint(host: &SshHost) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), host.host_key()).unwrap();
    let shown = std::process::Command::new("ssh-keygen").arg("-lf").arg(file.path()).output().unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    text.split_whitespace().nth(1).unwrap().to_owned()
}

fn address(host: &SshHost) -> String {
    format!("ssh://{}@{}:{}", host.user(), host.address(), host.port())
}

fn add(home: &Home, host: &SshHost, more: &[&str]) -> Ran {
    let identity = host.identity_file();
    let mut command = home.command(["hosts", "add", host.name(), &address(host)]);
    Ran::of(command.arg("--identity-file").arg(identity).args(more).output().unwrap())
}

fn names(home: &Home) -> Vec<String> {
    let hosts = home.run(["hosts", "list", "--json"]).json();
    let items = hosts["items"].as_array().unwrap();
    items.iter().map(|host| host["name"].as_str().unwrap().to_owned()).collect()
}

fn trust(home: &Home) {
    let Some(()) = require(SshHost::available()) else { return };
    let host = SshHost::start("alpha");
    let print = fingerprint(&host);

    // Nobody vouches for it: refused, with what it shows and what to do.
    let command = format!("sandboxer hosts add alpha {} --fingerprint {print}", address(&host));
    add(home, &host, &[]).exits(5).says(&print).says("--fingerprint");
    assert!(add(home, &host, &[]).stderr.contains(&command), "the exact command is in the hint");
    assert_eq!(names(home), ["local"]);

    let wrong = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    add(home, &host, &["--fingerprint", wrong]).exits(5).says("does not show the key that was confirmed");
    add(home, &host, &["--fingerprint", "SHA256:short"]).exits(2).says("is not a fingerprint");
    add(home, &host, &["--host-key", "ssh-ed25519 nonsense"]).exits(2).says("is not a host key");
    assert_eq!(names(home), ["local"]);

    let more =
        ["--fingerprint", &print, "--label", "pool=ci", "--region", "eu", "--max-sandboxes", "3", "--json"];
    let made = add(home, &host, &more).exits(0).json();
    assert_eq!(made["fingerprints"][0], print.as_str());
    assert_eq!((&made["labels"]["pool"], &made["capacity"]["sandboxes"]), (&"ci".into(), &3.into()));
    assert_eq!(names(home), ["local", "alpha"]);
    add(home, &host, &["--fingerprint", &print]).exits(4).says("there is a host `alpha` already");
    let list = home.run(["hosts", "list"]).ok();
    assert!(
        list.contains("0 of 3") && list.contains("pool=ci") && list.contains("not checked yet"),
        "{list}"
    );

    home.run(["hosts", "remove", "alhpa"]).exits(3).says("did you mean `alpha`?");
    assert_eq!(home.run(["hosts", "remove", "alpha"]).ok(), "alpha\n");
    add(home, &host, &["--host-key", &host.host_key()]).exits(0);
    home.run(["hosts", "remove", "alpha"]).ok();
    add(home, &host, &["--accept-key"]).exits(0);
    home.run(["hosts", "remove", "alpha"]).ok();
    home.run(["hosts", "remove", "alpha"]).exits(3);
}

#[test]
fn an_unknown_key_is_never_trusted_silently() {
    trust(&Home::new());
}

#[test]
fn nor_by_a_server() {
    trust(&Home::served());
}

#[test]
fn a_person_is_asked() {
    let Some(()) = require(SshHost::available()) else { return };
    let host = SshHost::start("alpha");
    for home in [Home::new(), Home::served()] {
        for (answer, code, known) in [("no\n", 5, vec!["local"]), ("yes\n", 0, vec!["local", "alpha"])] {
            let mut screen = Screen::new();
            let mut command = home.command(["hosts", "add", "alpha", &address(&host)]);
            command.arg("--identity-file").arg(host.identity_file());
            let mut child = screen.run(command);
            screen.waits_for("type `yes`");
            screen.waits_for(&fingerprint(&host));
            screen.press(answer);
            assert_eq!(child.wait().unwrap().code(), Some(code), "{answer}");
            assert_eq!(names(&home), known);
        }
    }
}

#[test]
fn keys_that_ssh_knows_can_be_taken_over() {
    let Some(()) = require(SshHost::available()) else { return };
    let host = SshHost::start("alpha");
    let home = Home::new();
    add(&home, &host, &["--from-known-hosts"]).exits(5).says("known_hosts has no key");
    home.file(".ssh/known_hosts", format!("{} {}\n", host.address(), host.host_key()));
    let made = add(&home, &host, &["--from-known-hosts", "--json"]).exits(0).json();
    assert_eq!(made["fingerprints"][0], fingerprint(&host).as_str());
}

#[test]
fn what_ssh_could_misread_never_reaches_it() {
    let home = Home::new();
    for address in [
        "ssh://-oProxyCommand=id@h",
        "ssh://u@-oProxyCommand=id",
        "ssh://u@h:0",
        "h",
        "ssh://h",
        "ssh://u@h;id",
    ] {
        home.run(["hosts", "add", "x", address, "--accept-key"])
            .exits(2)
            .says("is not the address of a host");
    }
    for name in ["-x", "a b", "..", "a/b", ""] {
        let ran = home.run(["hosts", "add", "--accept-key", "--", name, "ssh://u@127.0.0.1"]);
        ran.exits(2).says("is not the name of a host");
    }
    home.run(["hosts", "add", "local", "ssh://u@127.0.0.1", "--accept-key"]).exits(4);
    home.run(["hosts", "add", "x", "ssh://u@127.0.0.1:1", "--accept-key"]).exits(7).says("shows no host key");
    let missing = ["hosts", "add", "x", "ssh://u@h", "--identity-file", "/no/such", "--accept-key"];
    home.run(missing).exits(2).says("is not a key file");
    home.run(["hosts", "remove", "local"]).exits(4).says("is always a host");
}

fn health(home: &Home) {
    let Some(()) = require(SshHost::available()) else { return };
    let mut host = SshHost::start("alpha");
    add(home, &host, &["--host-key", &host.host_key()]).exits(0);
    let check = |home: &Home| home.run(["hosts", "check", "alpha", "--json"]).json()["items"][0].clone();
    let found = check(home);
    assert!(found["problem"].is_null() && found["latency_ms"].is_u64(), "{found}");

    host.stop();
    let found = check(home);
    assert_eq!(found["ok"], false);
    assert!(found["problem"].as_str().unwrap().contains("does not answer"), "{found}");
    home.run(["hosts", "check", "alpha"]).exits(7);
    let list = home.run(["hosts", "list"]).ok();
    assert!(list.contains("left alone"), "{list}");
    // A host that is away says so in the route, and is not asked.
    let plan = home.run(["create", "--dry-run", "--host", "alpha", "--profile", "profile.ssh-dev", "--json"]);
    let plan = plan.json();
    assert_eq!(plan["route"]["offers"][0]["accepted"], false);

    host.restart();
    eventually("it answers again", || check(home)["problem"].is_null());
    let hosts = home.run(["hosts", "list", "--json"]).json();
    // Left alone only if nothing on it can be used, which depends on the engines of this machine.
    assert_eq!(hosts["items"][1]["resting"] == false, check(home)["ok"] == true, "{hosts}");

    host.rekey();
    let found = check(home);
    assert_eq!(found["ok"], false);
    let problem = found["problem"].as_str().unwrap();
    assert!(problem.contains("another key") && problem.contains(&fingerprint(&host)), "{problem}");
    home.run(["hosts", "check", "alpha"]).exits(7);
    let said = home.run(["hosts", "check", "alpha"]);
    assert!(String::from_utf8_lossy(&said.stdout).contains("hosts remove alpha"), "{said:?}");
}

#[test]
fn a_host_that_is_away_or_shows_another_key_is_found_out() {
    health(&Home::new());
}

#[test]
fn also_by_a_server() {
    health(&Home::served());
}

#[test]
fn an_unknown_host_is_not_found_and_one_in_the_environment_counts() {
    let home = Home::new();
    home.run(["create", "--host", "lcoal"]).exits(3).says("did you mean `local`?");
    home.run(["inspect", "host", "mars"]).exits(3);
    home.run(["reap-stale", "--host", "mars"]).exits(3);
    let mut command = home.command(["create", "--dry-run"]);
    let ran = Ran::of(command.env("SANDBOXER_HOST", "mars").output().unwrap());
    ran.exits(3).says("there is no host `mars`");
}

#[test]
fn what_lives_is_not_stale() {
    for home in [Home::new(), Home::served()] {
        home.run(["inspect", "stale"]).exits(0).says("nothing ");
        let id = home.create();
        let found = home.run(["inspect", "stale", "--json"]).exits(0).json();
        assert!(found["remains"].as_array().unwrap().is_empty(), "{found}");
        let applied = home.run(["reap-stale", "--apply", "--json"]).exits(0).json();
        assert_eq!(applied["applied"], true);
        home.run(["exec", &id, "--", "true"]).exits(0);
    }
}

#[test]
fn what_no_row_knows_any_more_is_shown_and_then_removed() {
    let home = Home::new();
    let id = home.create();
    for file in ["sandboxer.db", "sandboxer.db-wal", "sandboxer.db-shm"] {
        let _ = std::fs::remove_file(home.state().join(file));
    }
    let shown = home.run(["reap-stale"]).exits(0).says("nothing was changed");
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(
        text.contains(&id) && text.contains("would be removed") && text.contains("no row knows it"),
        "{text}"
    );
    let found = home.run(["inspect", "stale", "--json"]).exits(0).json();
    let remains = &found["remains"][0];
    assert_eq!(
        (&remains["tag"], &remains["alive"]),
        (&id.as_str().into(), &true.into()),
        "still there: {found}"
    );
    assert!(!remains["parts"].as_array().unwrap().is_empty(), "what exactly would go: {found}");
    assert!(home.run(["reap-stale", "--apply"]).ok().contains("removed"));
    home.run(["reap-stale"]).exits(0).says("nothing ");
}

#[test]
fn the_engines_of_this_machine_are_told() {
    let home = Home::new();
    let facts = home.run(["inspect", "host", "--json"]).exits(0).json();
    assert!(facts["facts"]["engines"]["sandboxer"]["version"].is_string());
    assert_eq!((&facts["host"], &facts["reachable"]), (&"local".into(), &true.into()));
    assert!(home.run(["inspect", "host"]).ok().contains("engines sandboxer version"));
    assert!(home.run(["hosts", "check", "local"]).ok().contains("ext.native"));
}
