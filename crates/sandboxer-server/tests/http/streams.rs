//! Output as it comes.

use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::{Value, json};

use crate::support::{Server, eventually};

async fn stream(server: &Server, id: &str, accept: &str, line: &str) -> reqwest::Response {
    let path = format!("/v1/sandboxes/{id}/execs");
    server.post(&path).header("Accept", accept).json(&json!({ "command": line })).send().await.unwrap()
}

#[tokio::test]
async fn lines_come_as_they_are_made() {
    let server = Server::start().await;
    let id = server.create().await;
    let started = Instant::now();
    let answer =
        stream(&server, &id, "application/x-ndjson", "echo one; sleep 1; echo two >&2; exit 5").await;
    assert_eq!(answer.headers()["content-type"], "application/x-ndjson");
    let exec = answer.headers()["x-exec-id"].to_str().unwrap().to_owned();
    let mut body = answer.bytes_stream();
    let first = body.next().await.unwrap().unwrap();
    assert!(started.elapsed() < Duration::from_millis(900), "the first line waited for the end");
    assert_eq!(
        serde_json::from_slice::<Value>(&first).unwrap(),
        json!({ "type": "stdout", "data": "one\n" })
    );
    let rest = body.map(|piece| piece.unwrap()).collect::<Vec<_>>().await.concat();
    let rest: Vec<Value> =
        String::from_utf8(rest).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rest[0], json!({ "type": "stderr", "data": "two\n" }));
    assert_eq!(rest[1]["type"], "exit");
    assert_eq!(rest[1]["exit_code"], 5);
    assert_eq!(rest[1]["exec_id"], exec.as_str());
    assert_eq!(rest.len(), 2);
}

#[tokio::test]
async fn events_have_names() {
    let server = Server::start().await;
    let id = server.create().await;
    let answer = stream(&server, &id, "text/event-stream", "echo hi").await;
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let text = answer.text().await.unwrap();
    assert!(
        text.starts_with("event: stdout\ndata: {\"type\":\"stdout\",\"data\":\"hi\\n\"}\n\nevent: exit\n"),
        "{text}"
    );
}

#[tokio::test]
async fn characters_are_not_split_between_records() {
    let server = Server::start().await;
    let id = server.create().await;
    let line = r"printf 'a\303'; sleep 0.2; printf '\251b\342\202'; sleep 0.2; printf '\254'";
    let text = stream(&server, &id, "application/x-ndjson", line).await.text().await.unwrap();
    let said: String = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter_map(|record| record["data"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(said, "aéb€");
}

#[tokio::test]
async fn a_reader_that_leaves_ends_the_command() {
    let server = Server::start().await;
    let id = server.create().await;
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("pid");
    let line = format!("echo $$ > {}; while :; do echo x; sleep 0.05; done", mark.display());
    let answer = stream(&server, &id, "application/x-ndjson", &line).await;
    eventually("it runs", || std::fs::read_to_string(&mark).is_ok_and(|pid| !pid.is_empty())).await;
    let pid = std::fs::read_to_string(&mark).unwrap();
    drop(answer);
    let proc = format!("/proc/{}", pid.trim());
    eventually("it ended", || !std::path::Path::new(&proc).exists() || is_zombie(&proc)).await;
}

fn is_zombie(proc: &str) -> bool {
    std::fs::read_to_string(format!("{proc}/stat")).map_or(true, |stat| stat.contains(") Z"))
}

#[tokio::test]
async fn a_slow_reader_slows_the_command() {
    let server = Server::start().await;
    let id = server.create().await;
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("done");
    let line = format!("head -c 200000000 /dev/zero; touch {}", mark.display());
    let answer = stream(&server, &id, "application/x-ndjson", &line).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!mark.exists(), "200 MB went somewhere though nobody read them");
    drop(answer);
}
