//! From create to destroy, and everything that is told on the way.

use crate::support::{Home, eventually};

#[test]
fn the_canary_from_birth_to_death() {
    let home = Home::new();
    let created = home.run(["create"]).exits(0);
    let id = String::from_utf8(created.stdout).unwrap().trim().to_owned();
    assert!(id.starts_with("sbx_") && !id.contains('\n'), "{id}");
    assert_eq!(created.stderr, "", "no explanations where nobody reads them");

    let got = home.run(["get", "--json", &id]).json();
    assert_eq!(got["state"], "ready");
    assert!(got["isolation"]["effective"].is_string() && got["expires_at"].is_string(), "{got}");
    assert_eq!(home.run(["exec", &id, "--", "echo", "hello"]).ok(), "hello\n");
    assert_eq!(home.run(["get", "--json", &id]).json()["state"], "active");

    let shown = home.run(["get", &id]).ok();
    assert!(
        shown.contains("isolation:") && shown.contains("declared") && shown.contains("effective"),
        "{shown}"
    );
    let listed = home.run(["list"]).ok();
    assert!(listed.contains(&id) && listed.starts_with("ID "), "{listed}");

    assert_eq!(home.run(["destroy", &id]).ok().trim(), id);
    assert_eq!(home.run(["destroy", &id]).ok().trim(), id, "twice is the same answer");
    assert!(!home.run(["list"]).ok().contains(&id));
    assert!(home.run(["list", "--all"]).ok().contains(&id));
    home.run(["exec", &id, "--", "true"]).exits(4).says("hint:");
}

#[test]
fn labels_states_and_pages() {
    let home = Home::new();
    let ids: Vec<String> = ["blue", "blue", "red"]
        .iter()
        .map(|team| {
            home.run(["create", "--ttl", "5m", "--label", &format!("team={team}")]).ok().trim().to_owned()
        })
        .collect();
    let ids_of = |page: serde_json::Value| -> Vec<String> {
        page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["sandbox_id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids_of(home.run(["list", "--json", "--label", "team=blue"]).json()), [&*ids[1], &*ids[0]]);
    assert_eq!(ids_of(home.run(["list", "--json", "--state", "active"]).json()), Vec::<String>::new());
    let first = home.run(["list", "--json", "--limit", "2"]).json();
    let cursor = first["next_cursor"].as_str().unwrap().to_owned();
    assert_eq!(ids_of(first), [&*ids[2], &*ids[1]]);
    assert_eq!(ids_of(home.run(["list", "--json", "--limit", "2", "--cursor", &cursor]).json()), [&*ids[0]]);
    home.run(["list", "--cursor", "made-up"]).exits(2);
    home.run(["destroy", "--all", "--yes"]).ok();
    assert_eq!(ids_of(home.run(["list", "--json"]).json()), Vec::<String>::new());
}

#[test]
fn several_destroys_go_on_and_exit_with_the_worst() {
    let home = Home::new();
    let (one, two) = (home.create(), home.create());
    let stranger = "sbx_00000000000000000000000000";
    let ran = home.run(["destroy", &one, stranger, "nonsense", &two]).exits(3);
    assert_eq!(String::from_utf8(ran.stdout).unwrap().lines().collect::<Vec<_>>(), [one, two]);
    assert_eq!(ran.stderr.matches("error: ").count(), 2, "{}", ran.stderr);
    let told = home.run(["destroy", "--json", stranger]).exits(3).json();
    assert_eq!(told["errors"][0]["error"]["code"], "sandbox_not_found");
}

#[test]
fn unknown_things_are_mended_or_named() {
    let home = Home::new();
    home.run(["create", "--profile", "profile.agnet-dev"])
        .exits(3)
        .says("hint: did you mean `profile.agent-dev`?");
    home.run(["create", "--profile", "agent-dev"]).exits(3).says("profile.agent-dev");
    home.run(["create", "--extension", "ext.nativ"]).exits(7);
    home.run(["create", "--host", "mars"]).exits(3).says("hosts add");
    home.run(["create", "--ttl", "3650d"]).exits(2).says("maximum");
    home.run(["get", "sbx_00000000000000000000000000"]).exits(3).says("hint:");
    home.run(["get", "nonsense"]).exits(3);
    home.run(["extensions", "show", "ext.nativ"]).exits(3).says("did you mean `ext.native`?");
    home.run(["events", "--after", "evt_00000000000000000000000000"]).exits(3);
    home.run(["keys", "revoke", "key_00000000000000000000000000"]).exits(3);
}

#[test]
fn a_dry_run_tells_the_route_and_makes_nothing() {
    let home = Home::new();
    let shown = home.run(["create", "--dry-run", "--ttl", "1h"]).ok();
    assert!(
        shown.contains("ext.native") && shown.contains("accepted") && shown.contains("quote:"),
        "{shown}"
    );
    let plan = home.run(["create", "--dry-run", "--json"]).json();
    assert_eq!(plan["extension"], "ext.native");
    assert_eq!(plan["quote"]["basis"], "self-hosted");
    home.run(["create", "--dry-run", "--profile", "profile.e2b-burst"]).exits(7);
    assert_eq!(home.run(["list", "--all", "--json"]).json()["items"], serde_json::json!([]));
}

#[test]
fn a_time_to_live_is_kept_without_anybody_running() {
    let home = Home::new();
    let id = home.run(["create", "--ttl", "3s"]).ok().trim().to_owned();
    std::thread::sleep(std::time::Duration::from_millis(3_300));
    let got = home.run(["get", "--json", &id]).json();
    assert_eq!((&got["state"], &got["reason"]), (&"destroyed".into(), &"ttl".into()), "{got}");
    let kinds = home.run(["events", "--json", &id]).json();
    let kinds: Vec<&str> =
        kinds["items"].as_array().unwrap().iter().map(|e| e["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds.iter().map(|kind| kind.trim_start_matches("dev.sandboxer.sandbox.")).collect::<Vec<_>>(),
        ["requested", "provisioning", "ready", "expired", "destroying", "destroyed"]
    );
}

#[test]
fn the_end_moves_and_what_is_over_expires() {
    let home = Home::new();
    let id = home.run(["create", "--ttl", "1m"]).ok().trim().to_owned();
    let moved = home.run(["extend-ttl", &id, "--duration", "5m"]).ok();
    assert!(moved.starts_with(&format!("{id} expires in ")), "{moved}");
    home.run(["extend-ttl", &id, "--duration", "3650d"]).exits(2).says("maximum");
    home.run(["extend-ttl", &id, "--duration", "0s"]).exits(2);
    let short = home.run(["create", "--ttl", "2s"]).ok().trim().to_owned();
    std::thread::sleep(std::time::Duration::from_millis(2_200));
    assert!(home.run(["expire"]).ok().contains(&short));
    let applied = home.run(["expire", "--apply", "--json"]).json();
    assert_eq!(applied["items"][0]["state"], "destroyed");
    assert_eq!(home.run(["get", "--json", &id]).json()["state"], "ready");
}

#[test]
fn recreate_gives_a_new_one_of_the_same_kind() {
    let home = Home::new();
    let old =
        home.run(["create", "--ttl", "5m", "--label", "a=b", "--env", "GREETING=hi"]).ok().trim().to_owned();
    let new = home.run(["recreate", &old]).ok().trim().to_owned();
    assert_ne!(old, new);
    assert_eq!(home.run(["get", "--json", &old]).json()["state"], "destroyed");
    assert_eq!(home.run(["get", "--json", &new]).json()["labels"]["a"], "b");
    assert_eq!(home.run(["exec", &new, "--", "sh", "-c", "echo $GREETING"]).ok(), "hi\n");
}

#[test]
fn the_same_key_gives_the_same_sandbox() {
    let home = Home::new();
    let create = |ttl| home.run(["create", "--idempotency-key", "k1", "--ttl", ttl]);
    let first = create("5m").ok();
    assert_eq!(create("5m").ok(), first);
    create("6m").exits(4).says("hint: use a new key");
    let shared =
        |env| home.run(["create", "--json", "--scope", "shared", "--ttl", "5m", "--env", env]).json();
    let one = shared("A=1");
    let again = shared("A=1");
    assert_eq!((&again["sandbox_id"], &again["reused"]), (&one["sandbox_id"], &true.into()));
    let drifted = shared("A=2");
    assert_ne!(drifted["sandbox_id"], one["sandbox_id"]);
    assert_eq!(drifted["drift"]["changed"], serde_json::json!(["variables"]));
}

#[test]
fn keys_are_shown_once_and_revoked() {
    let home = Home::new();
    let secret = home.run(["keys", "create", "--name", "ci", "--actor", "atm", "--expires-in", "1h"]).ok();
    assert!(secret.starts_with("sbk_"));
    let listed = home.run(["keys", "list", "--json"]).json();
    let key = &listed["items"][0];
    assert!(key.get("hash").is_none() && !listed.to_string().contains(secret.trim()), "{listed}");
    let id = key["key_id"].as_str().unwrap().to_owned();
    home.run(["keys", "revoke", &id]).ok();
    assert!(home.run(["keys", "list"]).ok().contains("revoked"));
    home.run(["keys", "create", "--name", ""]).exits(2);
}

#[test]
fn profiles_of_the_project_win_and_mistakes_have_a_place() {
    let home = Home::new();
    home.profile(
        "mine",
        "id: profile.mine\nversion: \"1.0.0\"\nextends: profile.base\nvariables: { WHO: me }\n",
    );
    let shown = home.run(["profiles", "show", "profile.mine"]).ok();
    assert!(shown.contains("mine.yaml") && shown.contains("WHO: me"), "{shown}");
    let id = home.run(["create", "--profile", "profile.mine", "--ttl", "5m"]).ok().trim().to_owned();
    assert_eq!(home.run(["exec", &id, "--", "sh", "-c", "echo $WHO"]).ok(), "me\n");
    let bad = home.file("bad.yaml", "id: profile.bad\nversion: \"1.0.0\"\nnetwrok: {}\n");
    let good = home.file("good.yaml", "id: profile.good\nversion: \"1.0.0\"\n");
    let ran = home.run(["profiles", "validate", bad.to_str().unwrap(), good.to_str().unwrap()]).exits(2);
    assert!(ran.stderr.contains("bad.yaml:3:1") && ran.stderr.contains("network"), "{}", ran.stderr);
    assert!(String::from_utf8_lossy(&ran.stdout).contains("profile.good@1.0.0 is valid"));
    home.run(["profiles", "validate", "missing.yaml"]).exits(3);
}

#[test]
fn events_follow_what_another_command_does() {
    let home = Home::new();
    let mut follower = home.command(["events", "-f", "--json", "--limit", "3"]);
    let follower = follower.stdout(std::process::Stdio::piped()).spawn().unwrap();
    // The follower starts at the newest event, so it has to be there first.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let id = home.create();
    let output = follower.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let events: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 3, "{text}");
    assert!(events.iter().all(|event| event["subject"] == *id && event["specversion"] == "1.0"), "{text}");
    assert_eq!(events[2]["type"], "dev.sandboxer.sandbox.ready");
}

#[test]
fn the_host_and_a_sandbox_from_outside() {
    let home = Home::new();
    let id = home.create();
    assert!(home.run(["inspect", "host"]).ok().contains(&id));
    assert!(home.run(["inspect", "host", "--json"]).json()["facts"]["kernel"].is_object());
    let inspected = home.run(["inspect", "sandbox", &id, "--json"]).json();
    assert_eq!(inspected["backend"]["alive"], true);
    assert!(home.run(["inspect", "sandbox", &id]).ok().contains("CONTROL"));
    home.run(["inspect", "sandbox", "nonsense"]).exits(3);
}

#[test]
fn the_doctor_agrees_with_create() {
    let home = Home::new();
    let report = home.run(["doctor", "--json"]);
    let can_create = home.run(["create", "--ttl", "5m"]).code == Some(0);
    let (code, report) = (report.code, report.json());
    assert_eq!(report["ok"].as_bool(), Some(can_create), "{report:#}");
    assert_eq!(code, Some(if can_create { 0 } else { 7 }));
}

#[test]
fn a_missing_feature_is_refused_and_waived_only_in_words() {
    let home = Home::new();
    let mut refused = home.command(["create", "--ttl", "5m"]);
    let refused = refused.env("SANDBOXER_PROBE_OFF", "landlock,seccomp").output().unwrap();
    let refused = crate::support::Ran::of(refused).exits(7);
    assert!(refused.stderr.contains("hint:") || refused.stderr.contains("seccomp"), "{}", refused.stderr);
    let mut waived = home.command(["create", "--ttl", "5m", "--allow-degraded"]);
    let waived =
        crate::support::Ran::of(waived.env("SANDBOXER_PROBE_OFF", "landlock,seccomp").output().unwrap());
    let waived = waived.exits(0).says("DEGRADED");
    let id = String::from_utf8(waived.stdout).unwrap().trim().to_owned();
    assert!(home.run(["get", &id]).ok().contains("DEGRADED"));
    assert!(home.run(["list"]).ok().contains("DEGRADED"));
}

#[test]
fn events_reach_the_hub_without_a_server_and_cost_the_command_nothing() {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/events", listener.local_addr().unwrap());
    let heard = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let told = heard.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, told) = (stream.unwrap(), told.clone());
            std::thread::spawn(move || {
                let mut buffer = [0_u8; 65_536];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    told.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
                    if buffer[..count].ends_with(b"}") {
                        let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
                    }
                }
            });
        }
    });
    let home = Home::new();
    let created =
        home.command(["create", "--ttl", "5m"]).env("SANDBOXER_STATE_HUB_URL", &url).output().unwrap();
    assert!(created.status.success());
    eventually("the hub hears of ready", || heard.lock().unwrap().contains("dev.sandboxer.sandbox.ready"));
}
