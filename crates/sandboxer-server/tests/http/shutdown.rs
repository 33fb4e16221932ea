//! The end of a server: what is under way finishes, what does not end is ended, sandboxes live on.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::Server;

#[tokio::test]
async fn requests_in_flight_finish_and_sandboxes_live_on() {
    let mut server = Server::start().await;
    let id = server.create().await;
    let path = format!("/v1/sandboxes/{id}/execs");
    let request = server.post(&path).json(&json!({ "command": "sleep 0.7; echo finished" })).send();
    let running = tokio::spawn(request);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let started = Instant::now();
    server.stop().await;
    assert!(started.elapsed() < Duration::from_secs(5));
    let said: Value = running.await.unwrap().unwrap().json().await.unwrap();
    assert_eq!(said["stdout"], "finished\n");
    assert!(server.get("/healthz").send().await.is_err(), "nobody listens any more");
    assert_eq!(server.fake.living(), [id]);
}

#[tokio::test]
async fn what_does_not_finish_in_time_is_ended() {
    let mut server = Server::start_with(|limits| limits.drain = Duration::from_millis(300)).await;
    let id = server.create().await;
    let path = format!("/v1/sandboxes/{id}/execs");
    let request = server.post(&path).json(&json!({ "command": "sleep 60" })).send();
    let running = tokio::spawn(request);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let started = Instant::now();
    server.stop().await;
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    assert!(running.await.unwrap().is_err());
}

#[tokio::test]
async fn idle_connections_do_not_hold_it() {
    let mut server = Server::start().await;
    server.get("/healthz").send().await.unwrap();
    let _idle = tokio::net::TcpStream::connect(server.address).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let started = Instant::now();
    server.stop().await;
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

#[tokio::test]
async fn an_address_that_is_taken_is_told() {
    let server = Server::start().await;
    let options = sandboxer_server::ServeOptions::new(server.address);
    let refused =
        sandboxer_server::serve(server.engine.clone(), options, Default::default()).await.unwrap_err();
    assert_eq!(refused.kind().code(), "conflict");
    assert!(refused.hint().unwrap().contains("--listen"));
}
