//! With a server and without: the same commands, the same answers.

use std::collections::BTreeMap;

use crate::support::{Home, Ran};

/// Everything one run of the list gives, with what differs by nature replaced.
struct Story {
    home: Home,
    names: BTreeMap<String, String>,
    told: Vec<String>,
}

impl Story {
    fn new(home: Home) -> Self {
        Self { home, names: BTreeMap::new(), told: Vec::new() }
    }

    fn step<const N: usize>(&mut self, args: [&str; N]) -> String {
        let ran = self.home.run(args);
        self.tell(&args.join(" "), &ran);
        String::from_utf8_lossy(&ran.stdout).trim().to_owned()
    }

    fn tell(&mut self, what: &str, ran: &Ran) {
        let text = format!(
            "$ {what}\n[{}]\n{}--\n{}",
            ran.code.unwrap_or(-1),
            String::from_utf8_lossy(&ran.stdout),
            ran.stderr
        );
        let text = self.normal(&text);
        self.told.push(text);
    }

    /// Ids by their order, times and measured figures by a word.
    fn normal(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut word = String::new();
        for c in text.chars().chain(['\n']) {
            if c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.' | '-') {
                word.push(c);
                continue;
            }
            out.push_str(&self.word(&word));
            word.clear();
            out.push(c);
        }
        let home = self.home.path().display().to_string();
        let lines = out.replace(&home, "HOME");
        lines.lines().map(measured).collect::<Vec<_>>().join("\n")
    }

    fn word(&mut self, word: &str) -> String {
        let id = ["sbx_", "exe_", "evt_", "key_", "sbk_", "snp_", "whk_"].iter().find_map(|prefix| {
            let start = word.find(prefix)?;
            let length = if *prefix == "sbk_" { 68 } else { 30 };
            word.get(start..start + length)
                .filter(|id| id[4..].bytes().all(|byte| byte.is_ascii_alphanumeric()))
        });
        if let Some(id) = id.map(str::to_owned) {
            let next = format!("{}{}", &id[..4], self.names.len());
            let name = self.names.entry(id.clone()).or_insert(next).clone();
            return word.replace(&id, &name);
        }
        let is_time =
            word.len() >= 20 && word.ends_with('Z') && word.as_bytes()[4] == b'-' && word.contains('T');
        if is_time { "TIME".to_owned() } else { word.to_owned() }
    }
}

/// Lines whose figures are measurements, cut down to their name; ages to nothing.
fn measured(line: &str) -> String {
    const FIGURES: [&str; 24] = [
        "MiB free",
        "MB free",
        "duration_ms",
        "memory",
        "cpu",
        "disk",
        "uptime",
        "load",
        "\"source\"",
        "usage",
        "pid",
        "activity",
        "processor",
        "last activity",
        "started",
        "deadline",
        "available",
        "total",
        "config_hash",
        "read back",
        "uid",
        "created:",
        "expires:",
        "everything inside",
    ];
    match FIGURES.iter().find(|name| line.contains(**name)) {
        Some(name) => format!("({name})"),
        None => {
            let words = line.split_whitespace().map(|word| {
                let bare = word.trim_matches(|c: char| "\",(".contains(c));
                let is_age = bare.len() > 1
                    && bare.starts_with(|c: char| c.is_ascii_digit())
                    && bare.ends_with(|c: char| "dhms".contains(c))
                    && bare.chars().all(|c| c.is_ascii_digit() || "dhms".contains(c));
                if is_age { "AGE" } else { word }
            });
            words.collect::<Vec<_>>().join(" ")
        }
    }
}

fn run(home: Home) -> Vec<String> {
    let mut story = Story::new(home);
    story.home.file("tree/a", "content");
    let file = story.home.file("mine.yaml", "id: profile.mine\nversion: \"1.0.0\"\nextends: profile.bse\n");
    let create = [
        "create",
        "--ttl",
        "5m",
        "--label",
        "a=b",
        "--env",
        "X=1",
        "--harness",
        "h",
        "--idempotency-key",
        "k",
    ];
    let id = story.step(create);
    story.step(create);
    story.step(["create", "--json", "--ttl", "6m", "--idempotency-key", "k"]);
    story.step(["create", "--dry-run", "--json"]);
    story.step(["create", "--dry-run", "--profile", "profile.e2b-burst"]);
    story.step(["create", "--profile", "profile.agnet-dev"]);
    story.step(["create", "--profile", "profile.e2b-burst"]);
    story.step(["create", "--from", "snp_x"]);
    story.step(["create", "--ttl", "3650d"]);
    story.step(["create", "--env", "1=2"]);
    story.step(["get", &id]);
    story.step(["get", "--json", &id]);
    story.step(["get", "sbx_00000000000000000000000000"]);
    story.step(["list"]);
    story.step(["list", "--json", "--label", "a=b"]);
    story.step(["list", "--cursor", "nonsense"]);
    story.step(["exec", &id, "--", "sh", "-c", "echo $X; echo err >&2; exit 3"]);
    story.step(["exec", &id, "--", "no-such-command"]);
    story.step(["exec", &id, "--", "/etc/passwd"]);
    story.step(["exec", &id, "--", "sh", "-c", "kill -9 $$"]);
    story.step(["exec", "--timeout", "200ms", &id, "--", "sleep", "9"]);
    story.step(["exec", "--json", &id, "--", "sh", "-c", "echo a; echo b >&2; exit 4"]);
    story.step(["exec", "--env", "1=2", &id, "--", "true"]);
    story.step(["exec", "sbx_00000000000000000000000000", "--", "true"]);
    let fed = story.home.feed(["exec", "-i", &id, "--", "cat"], b"in\xff\n");
    story.tell("exec -i cat", &fed);
    let background = story.step(["exec", "-d", &id, "--", "sh", "-c", "echo bg; echo bge >&2; exit 6"]);
    story.step(["logs", "-f", &id, &background]);
    story.step(["logs", "--json", "--stdout", &id, &background]);
    story.step(["logs", &id, "exe_00000000000000000000000000"]);
    story.step(["logs", "--list", &id]);
    story.step(["cp", "tree", &format!("{id}:/tmp/tree")]);
    story.step(["cp", &format!("{id}:/tmp/tree/a"), "-"]);
    story.step(["cp", &format!("{id}:/no/such"), "-"]);
    story.step(["cp", "--json", &format!("{id}:/tmp/tree"), "back"]);
    for command in ["pause", "resume", "snapshot", "fork"] {
        story.step([command, &id]);
    }
    story.step(["logs", "--backend", &id]);
    story.step(["port", "sbx_00000000000000000000000000", "80"]);
    story.step(["snapshots", "list"]);
    story.step(["snapshots", "list", "--json"]);
    story.step(["snapshots", "list", "--cursor", "nonsense"]);
    story.step(["snapshots", "get", "snp_00000000000000000000000000"]);
    story.step(["snapshots", "delete", "--json", "snp_00000000000000000000000000", "nonsense"]);
    story.step(["restore", "snp_00000000000000000000000000"]);
    story.step(["extend-ttl", &id, "--duration", "10m"]);
    story.step(["extend-ttl", &id, "--duration", "3650d"]);
    story.step(["expire"]);
    story.step(["profiles", "list"]);
    story.step(["profiles", "show", "profile.agent-dev", "--json"]);
    story.step(["profiles", "show", "profile.nothing"]);
    story.step(["profiles", "validate", file.to_str().unwrap()]);
    story.step(["extensions", "list"]);
    story.step(["extensions", "show", "ext.native"]);
    story.step(["extensions", "show", "ext.nothing"]);
    story.step(["extensions", "check", "--json"]);
    story.step(["inspect", "sandbox", &id, "--json"]);
    story.step(["inspect", "host"]);
    story.step(["inspect", "host", "mars"]);
    story.step(["inspect", "stale"]);
    story.step(["reap-stale", "--json"]);
    story.step(["reap-stale", "--host", "loacl"]);
    story.step(["route", "explain"]);
    story.step(["route", "explain", "--json", "--profile", "profile.burst-sandbox", "--ttl", "1h"]);
    story.step([
        "route",
        "explain",
        "--only",
        "ext.docker",
        "--max-latency",
        "1ms",
        "--profile",
        "profile.e2b-burst",
    ]);
    story.step(["estimate", "--duration", "5m"]);
    story.step(["estimate", "--json", "--profile", "profile.saas-stub", "--duration", "15m"]);
    story.step(["estimate", "--profile", "profile.e2b-burst", "--duration", "1h"]);
    story.step(["credits", "show"]);
    story.step(["credits", "show", "org:nobody"]);
    story.step(["credits", "add", "5", "--id", "first", "--memo", "m"]);
    story.step(["credits", "add", "5", "--id", "first", "--memo", "m", "--json"]);
    story.step(["credits", "add", "6", "--id", "first"]);
    story.step(["credits", "add", "5", "--account", "world"]);
    story.step(["credits", "limit", "org:acme", "--overdraft", "2.5"]);
    story.step(["credits", "budget", "set", "actor:agt", "--per", "day", "--limit", "1"]);
    story.step(["credits", "budget", "list", "--json"]);
    story.step(["credits", "budget", "remove", "actor:atm", "--per", "day"]);
    let charged = story.step(["create", "--profile", "profile.saas-stub", "--ttl", "5m"]);
    story.step(["credits", "show", "--json"]);
    story.step(["meters", "list", "--sandbox", &charged]);
    story.step(["credits", "history"]);
    story.step(["credits", "history", "--json", "--limit", "1"]);
    story.step(["credits", "history", "--cursor", "nonsense"]);
    story.step(["credits", "history", "--account", "all", "--sandbox", &charged]);
    story.step(["credits", "export", "--month", "2000-01", "--account", "org:acme"]);
    story.step(["credits", "audit"]);
    story.step(["credits", "reconcile", "--extension", "ext.e2b", "tree/a"]);
    story.step(["credits", "provider-keys", "list"]);
    story.step(["meters", "list", "--cursor", "nonsense"]);
    story.step(["webhooks", "list"]);
    story.step(["webhooks", "add", "http://127.0.0.1:9/x"]);
    story.step(["webhooks", "get", "whk_00000000000000000000000000"]);
    story.step(["webhooks", "remove", "--json", "whk_00000000000000000000000000", "nonsense"]);
    story.step(["events", "dead", "--json"]);
    story.step(["events", "replay", "--delivery", "7"]);
    story.step(["hosts", "list"]);
    story.step(["hosts", "list", "--json"]);
    story.step(["hosts", "check", "local"]);
    story.step(["hosts", "check", "mars"]);
    story.step(["hosts", "add", "x", "nowhere"]);
    story.step(["hosts", "add", "x", "ssh://u@127.0.0.1:1"]);
    story.step(["hosts", "remove", "x"]);
    story.step(["create", "--host", "mars"]);
    story.step(["events", &id]);
    story.step(["events", "--json", "--limit", "2", &id]);
    story.step(["events", "--after", "evt_00000000000000000000000000"]);
    let new = story.step(["recreate", &id]);
    story.step(["destroy", &id, &new, "sbx_00000000000000000000000000"]);
    story.step(["exec", &id, "--", "true"]);
    story.step(["cp", "tree", &format!("{id}:/tmp/x")]);
    story.step(["get", "--json", &new]);
    story.step(["list", "--all"]);
    story.step(["keys", "list"]);
    story.step(["keys", "revoke", "key_00000000000000000000000000"]);
    std::mem::take(&mut story.told)
}

#[test]
fn the_same_answers_with_and_without_a_server() {
    let embedded = run(Home::new());
    let served = run(Home::served());
    assert_eq!(embedded.len(), served.len());
    for (embedded, served) in embedded.iter().zip(&served) {
        let command = embedded.lines().next().unwrap();
        let differ = || embedded.lines().zip(served.lines()).find(|(a, b)| a != b);
        assert!(embedded == served, "{command}: {:?}\n{embedded}\n\nwith a server:\n{served}", differ());
    }
}
