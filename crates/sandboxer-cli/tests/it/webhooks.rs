//! Webhooks and hubs from outside: a real receiver gets what happens, with and without a server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use crate::support::{Home, eventually};

/// A receiver that answers 204 and remembers each request: its head and its body.
struct Receiver {
    url: String,
    seen: Arc<Mutex<Vec<(String, serde_json::Value)>>>,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = kept.clone();
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream);
                    let (mut head, mut length) = (String::new(), 0);
                    loop {
                        let mut line = String::new();
                        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                            break;
                        }
                        let lower = line.to_ascii_lowercase();
                        if let Some(text) = lower.strip_prefix("content-length:") {
                            length = text.trim().parse().unwrap_or(0);
                        }
                        head.push_str(&lower);
                    }
                    let mut body = vec![0; length];
                    if reader.read_exact(&mut body).is_ok() {
                        let body = serde_json::from_slice(&body).unwrap_or_default();
                        kept.lock().unwrap().push((head, body));
                    }
                    let answer = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
                    let _ = reader.into_inner().write_all(answer);
                });
            }
        });
        Self { url, seen }
    }

    fn kinds(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter().map(|(_, body)| body["type"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn has(&self, kind: &str) -> bool {
        self.kinds().iter().any(|known| known == &format!("dev.sandboxer.{kind}"))
    }
}

fn tells(home: &Home) {
    let receiver = Receiver::start();
    home.run(["webhooks", "list"]).exits(0).says("no webhooks");
    let added = home.run(["webhooks", "add", &receiver.url, "--event", "sandbox.*", "--json"]).json();
    let id = added["webhook_id"].as_str().unwrap().to_owned();
    assert!(added["secret"].as_str().unwrap().starts_with("whsec_"));
    home.run(["webhooks", "test", &id]).exits(0);
    assert!(receiver.has("webhook.test"));
    let sandbox = home.create();
    home.run(["destroy", &sandbox]).ok();
    eventually("the last event arrives", || receiver.has("sandbox.destroyed"));
    assert!(receiver.seen.lock().unwrap()[0].0.contains("webhook-signature: v1,"));
    assert!(!home.run(["webhooks", "list"]).ok().contains("whsec_"));
    home.run(["webhooks", "rotate", &id, "--overlap", "1h"]).exits(0).says("not shown again");
    home.run(["webhooks", "disable", &id]).ok();
    assert!(home.run(["webhooks", "get", &id]).ok().contains("DISABLED"));
    home.run(["webhooks", "enable", &id]).ok();

    // Sent again on demand, under the same id.
    let event = home.run(["events", "--json", "--limit", "1", &sandbox]).json()["items"][0]["id"].clone();
    let event = event.as_str().unwrap();
    let before = receiver.kinds().len();
    assert_eq!(home.run(["events", "replay", "--sink", &id, "--event", event]).ok().trim(), "1");
    eventually("it arrives again", || receiver.kinds().len() > before);
    home.run(["events", "dead"]).exits(0).says("nothing was given up");
    home.run(["events", "replay"]).exits(2);
    home.run(["events", "replay", "--sink", "nowhere", "--since", "2026-01-01"]).exits(3);
    home.run(["events", "replay", "--sink", "nowhere"]).exits(3).says("there is no sink");
    home.run(["webhooks", "remove", &id]).ok();
    home.run(["webhooks", "get", &id]).exits(3);
}

#[test]
fn a_receiver_is_told_without_a_server() {
    tells(&Home::new().with("SANDBOXER_WEBHOOK_ALLOW_PRIVATE", "127.0.0.1"));
}

#[test]
fn a_receiver_is_told_by_a_server() {
    tells(&Home::new().with("SANDBOXER_WEBHOOK_ALLOW_PRIVATE", "127.0.0.1").serving());
}

#[test]
fn private_addresses_are_refused() {
    let home = Home::new();
    for url in ["http://127.0.0.1:9/x", "https://192.168.1.1/", "https://[fd00::1]/"] {
        let ran = home.run(["webhooks", "add", url]);
        assert!(matches!(ran.code, Some(2 | 5)), "{url}: {ran:?}");
    }
    home.run(["webhooks", "add", "https://example.org", "--event", "a.[b]"]).exits(2).says("sandbox.*");
}

#[test]
fn the_billing_hub_gets_meters_and_credits_and_nothing_else() {
    let receiver = Receiver::start();
    let home = Home::new().with("SANDBOXER_FIN_HUB_URL", receiver.url.clone());
    home.run(["credits", "add", "10"]).ok();
    let id = home.run(["create", "--profile", "profile.saas-stub", "--ttl", "5m"]).ok();
    home.run(["destroy", id.trim()]).ok();
    eventually("the settlement arrives", || receiver.has("credits.settled"));
    let kinds = receiver.kinds();
    assert!(kinds.iter().all(|kind| kind.contains(".meter.") || kind.contains(".credits.")), "{kinds:?}");
    assert!(kinds.iter().any(|kind| kind.contains(".meter.")), "{kinds:?}");
}

#[test]
fn plain_http_to_a_public_address_and_unknown_events_are_refused() {
    let home = Home::new().with("SANDBOXER_WEBHOOK_ALLOW_PRIVATE", "127.0.0.1");
    home.run(["webhooks", "add", "http://1.1.1.1/"]).exits(5).says("https");
    let add = |event: &str| home.run(["webhooks", "add", "https://1.1.1.1/", "--event", event]);
    add("sandbx.*").exits(2).says("did you mean `sandbox.*`?");
    add("sandbox.nope").exits(2).says("sandbox.ready");
    home.run(["webhooks", "list"]).exits(0).says("no webhooks");
    add("dev.sandboxer.sandbox.ready").exits(0);
}

#[test]
fn a_hub_that_is_none_is_refused_by_every_command() {
    for (name, url) in [("SANDBOXER_FIN_HUB_URL", "nonsense"), ("SANDBOXER_STATE_HUB_URL", "ftp://x/")] {
        let home = Home::new().with(name, url);
        home.run(["list"]).exits(2).says(name);
        home.run(["create"]).exits(2).says(name);
    }
}

#[test]
fn a_hub_that_one_process_knows_is_queued_for_by_all_until_it_is_forgotten() {
    // Nobody listens there.
    let home = Home::new().with("SANDBOXER_STATE_HUB_URL", "http://127.0.0.1:9/");
    home.run(["list"]).ok();
    home.run(["events", "forget", "state-hub"]).exits(4).says("take its URL out of the configuration");
    let home = home.with("SANDBOXER_STATE_HUB_URL", "");
    let id = home.create();
    home.run(["destroy", &id]).ok();
    let sinks = home.run(["events", "sinks", "--json"]).json();
    assert_eq!(sinks["items"][0]["sink"], "state-hub", "{sinks}");
    assert!(sinks["items"][0]["pending"].as_u64().unwrap() > 3, "{sinks}");
    let report = home.run(["doctor", "--json"]).json();
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["about"] == "state hub").unwrap();
    assert!(check["ok"] == false && check["required"] == false, "{check}");
    assert!(check["hint"].as_str().unwrap().contains("state_hub_url"), "{check}");
    home.run(["events", "forget", "fin-hub"]).exits(3).says("events sinks");
    let dropped = home.run(["events", "forget", "state-hub", "--json"]).json();
    assert_eq!(dropped["dropped"], sinks["items"][0]["pending"]);
    home.run(["events", "sinks"]).exits(0).says("go to nobody yet");
}
