//! Commands that are waited for, and background ones.

use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::support::{Server, error};

#[tokio::test]
async fn streams_apart_input_environment_and_codes() {
    let server = Server::start().await;
    let id = server.create().await;
    let said = server.sh(&id, "echo out; echo err >&2; exit 3").await;
    assert_eq!(said["stdout"], "out\n");
    assert_eq!(said["stderr"], "err\n");
    assert_eq!(said["exit_code"], 3);
    assert_eq!(said["truncated"], false);
    assert!(said["duration_ms"].is_u64() && said["exec_id"].as_str().unwrap().starts_with("exe_"));
    let said = server.exec(&id, json!({ "command": ["cat"], "stdin": "fed" })).await;
    assert_eq!(said["stdout"], "fed");
    let said = server.exec(&id, json!({ "command": "echo $WORD", "env": { "WORD": "x y" } })).await;
    assert_eq!(said["stdout"], "x y\n");
    assert_eq!(server.exec(&id, json!({ "command": ["/no/such"] })).await["exit_code"], 127);
    assert_eq!(server.exec(&id, json!({ "command": ["/etc/passwd"] })).await["exit_code"], 126);
    let killed = server.sh(&id, "kill -9 $$").await;
    assert_eq!((killed["exit_code"].as_i64(), killed["signal"].as_i64()), (Some(137), Some(9)));
}

#[tokio::test]
async fn a_timeout_is_an_answer() {
    let server = Server::start().await;
    let id = server.create().await;
    let said = server.exec(&id, json!({ "command": "echo before; sleep 60", "timeout": "200ms" })).await;
    assert_eq!(said["timed_out"], true);
    assert_eq!(said["exit_code"], 124);
    assert_eq!(said["stdout"], "before\n");
}

#[tokio::test]
async fn output_that_is_no_text() {
    let server = Server::start().await;
    let id = server.create().await;
    let line = r"printf 'a\377b\000c'";
    let said = server.sh(&id, line).await;
    assert_eq!(said["stdout"], "a\u{fffd}b\0c");
    let path = format!("/v1/sandboxes/{id}/execs?encoding=base64");
    let said: Value =
        server.post(&path).json(&json!({ "command": line })).send().await.unwrap().json().await.unwrap();
    let bytes = base64::engine::general_purpose::STANDARD.decode(said["stdout"].as_str().unwrap()).unwrap();
    assert_eq!(bytes, b"a\xffb\0c");
    let path = format!("/v1/sandboxes/{id}/execs?encoding=hex");
    assert_eq!(
        error(server.post(&path).json(&json!({ "command": line })).send().await.unwrap()).await.0,
        400
    );
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gibibyte_of_output_is_cut_in_the_middle_and_stays_small() {
    let server = Server::start().await;
    let id = server.create().await;
    let before = resident_kib();
    let peak = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let watching = tokio::spawn({
        let peak = peak.clone();
        async move {
            loop {
                peak.fetch_max(resident_kib(), std::sync::atomic::Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    });
    let said = server.sh(&id, "printf first; head -c 1073741824 /dev/zero | tr '\\0' x; printf last").await;
    watching.abort();
    assert_eq!(said["truncated"], true);
    let text = said["stdout"].as_str().unwrap();
    assert!(text.starts_with("firstx") && text.ends_with("xlast"));
    assert!(text.len() < (1 << 20) + 100);
    let cut = (1_u64 << 30) + 9 - (1 << 20);
    assert!(text.contains(&format!("\n[… {cut} bytes cut …]\n")));
    let grown = peak.load(std::sync::atomic::Ordering::Relaxed).saturating_sub(before);
    assert!(grown < 128 * 1024, "grew by {grown} KiB");
}

#[tokio::test]
async fn children_that_hold_the_pipes_do_not_hold_the_answer() {
    let server = Server::start().await;
    let id = server.create().await;
    let started = Instant::now();
    let said = server.sh(&id, "sleep 20 & echo done").await;
    assert_eq!(said["stdout"], "done\n");
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    let started = Instant::now();
    server.sh(&id, "(while :; do echo x; sleep 0.05; done) & echo done").await;
    assert!(started.elapsed() < Duration::from_secs(9), "{:?}", started.elapsed());
}

#[tokio::test]
async fn what_cannot_run_is_refused() {
    let server = Server::start().await;
    let id = server.create().await;
    let path = format!("/v1/sandboxes/{id}/execs");
    for body in [
        json!({ "command": [] }),
        json!({ "command": "true", "timeout": "0s" }),
        json!({ "command": "true", "timeout": "1 hour" }),
        json!({ "command": "true", "evn": {} }),
        json!({ "command": ["a\u{0}b"] }),
    ] {
        let (status, wrong) = error(server.post(&path).json(&body).send().await.unwrap()).await;
        assert_eq!((status, wrong["code"].as_str()), (400, Some("invalid_input")), "{body}");
    }
    server.http.delete(server.url(&format!("/v1/sandboxes/{id}"))).send().await.unwrap();
    let answer = server.post(&path).json(&json!({ "command": "true" })).send().await.unwrap();
    let (status, wrong) = error(answer).await;
    assert_eq!((status, wrong["code"].as_str()), (409, Some("illegal_state")));
}

#[tokio::test]
async fn a_background_exec_is_fed_read_and_ended() {
    let server = Server::start().await;
    let id = server.create().await;
    let base = format!("/v1/sandboxes/{id}/execs");
    let body = json!({ "command": "echo é-ready; cat; echo late >&2; exit 4", "background": true });
    let started = server.post(&base).json(&body).send().await.unwrap();
    assert_eq!(started.status(), 202);
    let path = started.headers()["location"].to_str().unwrap().to_owned();
    let exec = started.json::<Value>().await.unwrap()["exec_id"].as_str().unwrap().to_owned();
    assert_eq!(path, format!("{base}/{exec}"));
    let fed = server.post(&format!("{path}/stdin")).body("more\n").send().await.unwrap();
    assert_eq!(fed.status(), 204);
    let running: Value = server.get(&path).send().await.unwrap().json().await.unwrap();
    assert_eq!(running["running"], true);
    let closed = server.post(&format!("{path}/stdin?eof=true")).send().await.unwrap();
    assert_eq!(closed.status(), 204);

    let text = server.get(&format!("{path}/stream?follow=true")).send().await.unwrap().text().await.unwrap();
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said = |kind: &str| -> String {
        records
            .iter()
            .filter(|record| record["type"] == kind)
            .filter_map(|record| record["data"].as_str())
            .collect()
    };
    assert_eq!(said("stdout"), "é-ready\nmore\n");
    assert_eq!(said("stderr"), "late\n");
    let last = records.last().unwrap();
    assert_eq!((last["type"].as_str(), last["exit_code"].as_i64()), (Some("exit"), Some(4)));

    let rest = server.get(&format!("{path}/stream?stdout_offset=9&stderr_offset=5&encoding=base64"));
    let text = rest.send().await.unwrap().text().await.unwrap();
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(first["data"], "bW9yZQo=");
    let all: Value = server.get(&base).send().await.unwrap().json().await.unwrap();
    assert_eq!(all["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_background_exec_is_signalled_and_unknown_ones_are_not_there() {
    let server = Server::start().await;
    let id = server.create().await;
    let base = format!("/v1/sandboxes/{id}/execs");
    let body = json!({ "command": "sleep 60", "background": true, "stdin": "" });
    let info: Value = server.post(&base).json(&body).send().await.unwrap().json().await.unwrap();
    let path = format!("{base}/{}", info["exec_id"].as_str().unwrap());
    let bad = server.post(&format!("{path}/signal")).json(&json!({ "signal": 99 })).send().await.unwrap();
    assert_eq!(error(bad).await.0, 400);
    let sent = server.post(&format!("{path}/signal")).json(&json!({ "signal": 15 })).send().await.unwrap();
    assert_eq!(sent.status(), 204);
    let text = server.get(&format!("{path}/stream?follow=true")).send().await.unwrap().text().await.unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!((last["exit_code"].as_i64(), last["signal"].as_i64()), (Some(143), Some(15)));
    for wrong in ["exe_00000000000000000000000000", "nonsense"] {
        let (status, wrong) = error(server.get(&format!("{base}/{wrong}")).send().await.unwrap()).await;
        assert_eq!((status, wrong["code"].as_str()), (404, Some("exec_not_found")));
    }
}
