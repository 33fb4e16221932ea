//! Events: pages, streams, and going on after a break without loss or doubles.

use std::time::Duration;

use futures::StreamExt;
use serde_json::Value;

use crate::support::{Server, error};

/// The ids and types of the next `count` events of a stream.
async fn next_events(answer: reqwest::Response, count: usize) -> Vec<(String, String)> {
    let mut body = answer.bytes_stream();
    let mut text = String::new();
    loop {
        let events: Vec<(String, String)> = text
            .split("\n\n")
            .filter(|block| block.starts_with("id: ") && block.contains("\ndata: "))
            .map(|block| {
                let field = |name: &str| {
                    block.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned()
                };
                let data: Value = serde_json::from_str(&field("data: ")).unwrap();
                assert_eq!(data["id"], field("id: "));
                (field("id: "), field("event: "))
            })
            .collect();
        if events.len() >= count && text.ends_with("\n\n") {
            return events.into_iter().take(count).collect();
        }
        let piece =
            tokio::time::timeout(Duration::from_secs(5), body.next()).await.expect("an event in time");
        text.push_str(std::str::from_utf8(&piece.unwrap().unwrap()).unwrap());
    }
}

fn follow(server: &Server, path: &str) -> reqwest::RequestBuilder {
    server.get(path).header("Accept", "text/event-stream")
}

#[tokio::test]
async fn pages_go_on_where_the_last_one_ended() {
    let server = Server::start().await;
    let id = server.create().await;
    server.sh(&id, "true").await;
    let all: Value =
        server.get(&format!("/v1/sandboxes/{id}/events")).send().await.unwrap().json().await.unwrap();
    let all = all["items"].as_array().unwrap().clone();
    let kinds: Vec<_> = all.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        ["requested", "provisioning", "ready", "active"]
            .map(|state| format!("dev.sandboxer.sandbox.{state}"))
    );
    let (mut seen, mut query) = (Vec::new(), "limit=1".to_owned());
    loop {
        let page: Value =
            server.get(&format!("/v1/events?{query}")).send().await.unwrap().json().await.unwrap();
        seen.extend(page["items"].as_array().unwrap().clone());
        let Some(next) = page["next_cursor"].as_str() else { break };
        query = format!("limit=1&after={next}");
    }
    assert_eq!(seen, all);
}

#[tokio::test]
async fn a_stream_resumes_without_loss_or_doubles() {
    let server = Server::start().await;
    let mut expected = 0;
    let mut seen: Vec<(String, String)> = Vec::new();
    for round in 0..4 {
        let mut request = follow(&server, "/v1/events");
        if let Some((last, _)) = seen.last() {
            request = if round % 2 == 0 {
                request.header("Last-Event-ID", last)
            } else {
                follow(&server, &format!("/v1/events?after={last}"))
            };
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        // Some before the reader comes, some while it reads, some after it broke off in the middle.
        let id = server.create().await;
        server.sh(&id, "true").await;
        expected += 4;
        let want = expected - seen.len();
        seen.extend(next_events(answer, want.min(3)).await);
    }
    let last = &seen.last().unwrap().0;
    let rest = next_events(
        follow(&server, &format!("/v1/events?after={last}")).send().await.unwrap(),
        expected - seen.len(),
    )
    .await;
    seen.extend(rest);
    let all: Value = server.get("/v1/events").send().await.unwrap().json().await.unwrap();
    let all: Vec<&str> =
        all["items"].as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert_eq!(seen.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), all);
}

#[tokio::test]
async fn latest_starts_with_what_is_new() {
    let server = Server::start().await;
    server.create().await;
    let answer = follow(&server, "/v1/events?after=latest").send().await.unwrap();
    let id = server.create().await;
    let seen = next_events(answer, 3).await;
    assert_eq!(seen[0].1, "dev.sandboxer.sandbox.requested");
    let own: Value =
        server.get(&format!("/v1/sandboxes/{id}/events")).send().await.unwrap().json().await.unwrap();
    assert_eq!(own["items"][0]["id"], seen[0].0.as_str());
}

#[tokio::test]
async fn unknown_places_and_too_many_readers() {
    let server = Server::start_with(|limits| limits.event_streams = 1).await;
    for after in ["evt_00000000000000000000000000", "nonsense"] {
        let answer = follow(&server, &format!("/v1/events?after={after}")).send().await.unwrap();
        assert_eq!(error(answer).await.0, 404);
    }
    let none = follow(&server, "/v1/sandboxes/sbx_00000000000000000000000000/events").send().await.unwrap();
    assert_eq!(error(none).await.1["code"], "sandbox_not_found");
    let first = follow(&server, "/v1/events").send().await.unwrap();
    let second = follow(&server, "/v1/events").send().await.unwrap();
    assert_eq!(second.headers()["retry-after"], "5");
    assert_eq!(error(second).await.0, 429);
    drop(first);
}

#[tokio::test]
async fn a_stop_ends_the_stream() {
    let mut server = Server::start().await;
    let answer = follow(&server, "/v1/events").send().await.unwrap();
    let reading = tokio::spawn(answer.text());
    tokio::time::sleep(Duration::from_millis(50)).await;
    tokio::time::timeout(Duration::from_secs(3), server.stop())
        .await
        .expect("the stream does not hold the server");
    reading.await.unwrap().unwrap();
}
