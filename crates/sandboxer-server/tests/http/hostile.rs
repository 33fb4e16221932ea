//! Bad input of every kind: a clear answer, and a server that goes on.

use std::num::NonZeroU32;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Server, error};

#[tokio::test]
async fn bodies_that_are_not_right() {
    let server = Server::start().await;
    let send = |body: &'static str, kind: &'static str| {
        server.post("/v1/sandboxes").header("Content-Type", kind).body(body).send()
    };
    let (status, wrong) = error(send("{\"profil\": \"x\"}", "application/json").await.unwrap()).await;
    assert_eq!((status, wrong["code"].as_str()), (400, Some("invalid_input")));
    assert!(wrong["message"].as_str().unwrap().starts_with("line 1, column "), "{wrong}");
    assert_eq!(wrong["hint"], "did you mean `profile`?");
    assert_eq!(wrong["details"]["line"], "1");
    assert_eq!(error(send("{", "application/json").await.unwrap()).await.0, 400);
    let (status, wrong) = error(send("profile=x", "application/x-www-form-urlencoded").await.unwrap()).await;
    assert_eq!((status, wrong["code"].as_str()), (415, Some("unsupported_media_type")));
    let deep = "[".repeat(100_000);
    let answer = server.post("/v1/sandboxes").header("Content-Type", "application/json").body(deep).send();
    assert_eq!(error(answer.await.unwrap()).await.0, 400);
    let answer = server.post("/v1/sandboxes").json(&json!({ "env": { "x": "y".repeat(2 << 20) } })).send();
    assert_eq!(error(answer.await.unwrap()).await.0, 413);
}

#[tokio::test]
async fn routes_and_methods_that_are_not_there() {
    let server = Server::start().await;
    let (status, wrong) = error(server.get("/v1/nothing?secret=1").send().await.unwrap()).await;
    assert_eq!((status, wrong["code"].as_str()), (404, Some("not_found")));
    assert!(!wrong.to_string().contains("secret"));
    let answer = server.http.patch(server.url("/v1/sandboxes")).send().await.unwrap();
    assert_eq!(answer.headers()["allow"], "GET,HEAD,POST");
    let (status, wrong) = error(answer).await;
    assert_eq!((status, wrong["code"].as_str()), (405, Some("method_not_allowed")));
    for id in ["sbx_00000000000000000000000000", "nonsense", "%ff", "..%2f..%2fetc"] {
        let status = error(server.get(&format!("/v1/sandboxes/{id}")).send().await.unwrap()).await.0;
        assert!(status == 404 || status == 400, "{id}: {status}");
    }
}

#[tokio::test]
async fn a_backend_that_fails_or_panics_is_an_answer() {
    let server = Server::start().await;
    let send = |inputs: Value| {
        server.post("/v1/sandboxes").json(&json!({ "profile": "profile.test", "inputs": inputs })).send()
    };
    let (status, wrong) = error(send(json!({ "fail": "no luck" })).await.unwrap()).await;
    assert_eq!((status, wrong["code"].as_str()), (503, Some("no_backend")));
    assert!(wrong["message"].as_str().unwrap().contains("no luck"));
    assert_eq!(wrong["details"]["attempts"][0]["code"], "backend_failed", "{wrong}");
    // Who names the backend hears what it said.
    let body = json!({ "profile": "profile.test", "extension": "ext.fake", "inputs": { "fail": "no luck" } });
    let (status, wrong) = error(server.post("/v1/sandboxes").json(&body).send().await.unwrap()).await;
    assert_eq!((status, wrong["code"].as_str()), (502, Some("backend_failed")));
    let (status, wrong) = error(send(json!({ "panic": "1" })).await.unwrap()).await;
    assert_eq!((status, wrong["code"].as_str()), (500, Some("internal")));
    server.create().await;
}

#[tokio::test]
async fn too_many_requests_are_told_to_wait() {
    let server = Server::start_with(|limits| limits.requests_per_second = NonZeroU32::new(5).unwrap()).await;
    let mut refused = None;
    for _ in 0..20 {
        let answer = server.get("/v1/hosts").send().await.unwrap();
        if answer.status() == 429 {
            refused = Some(answer);
        }
    }
    let refused = refused.expect("one of twenty is too many");
    assert!(refused.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(error(refused).await.1["code"], "rate_limited");
    assert_eq!(server.get("/healthz").send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn the_default_limits_leave_a_benchmark_alone() {
    let server = Server::start().await;
    for _ in 0..3_000 {
        assert_eq!(server.get("/v1/hosts").send().await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn connections_have_a_bound_and_slow_ones_an_end() {
    let server = Server::start_with(|limits| {
        limits.connections = 2;
        limits.header_timeout = Duration::from_millis(300);
    })
    .await;
    let _slow: Vec<_> = {
        let mut all = Vec::new();
        for _ in 0..2 {
            let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut stream, b"GET / HT").await.unwrap();
            all.push(stream);
        }
        all
    };
    // Both places are taken until their time is over; then the third one is served.
    let answer = tokio::time::timeout(Duration::from_secs(5), server.get("/healthz").send()).await;
    assert_eq!(answer.unwrap().unwrap().status(), 200);
}

/// Small and repeatable: a linear congruence is random enough to break things with.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

#[tokio::test]
async fn garbage_does_not_stop_it() {
    let server = Server::start().await;
    let seeds: [&[u8]; 6] = [
        b"GET /v1/sandboxes?limit=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        b"POST /v1/sandboxes HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/route HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"GET /v1/sandboxes/sbx_1/execs/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"PUT /v1/sandboxes/x/files?path=%00%ff HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ];
    let mut dice = Dice(7);
    let mut rounds = tokio::task::JoinSet::new();
    for round in 0..400 {
        let mut bytes = seeds[round % seeds.len()].to_vec();
        for _ in 0..dice.roll(6) {
            let (at, byte) = (dice.roll(bytes.len()), u8::try_from(dice.roll(256)).unwrap());
            match dice.roll(3) {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let address = server.address;
        rounds.spawn(async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            let mut out = Vec::new();
            let read = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut out)).await;
            assert!(read.is_ok(), "no end for {:?}", String::from_utf8_lossy(&bytes));
            let text = String::from_utf8_lossy(&out);
            assert!(out.is_empty() || text.starts_with("HTTP/1."), "{text}");
            assert!(!text.contains(" 500 "), "{text}\nfor {:?}", String::from_utf8_lossy(&bytes));
        });
        if rounds.len() >= 32 {
            rounds.join_next().await.unwrap().unwrap();
        }
    }
    while let Some(done) = rounds.join_next().await {
        done.unwrap();
    }
    assert_eq!(server.get("/readyz").send().await.unwrap().status(), 200);
}
