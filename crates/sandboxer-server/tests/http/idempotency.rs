//! The same key and body: done once.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Server, error};

#[tokio::test]
async fn a_create_is_done_once() {
    let server = Server::start().await;
    let body = json!({ "profile": "profile.test" });
    let send = |body: &Value| server.post("/v1/sandboxes").header("Idempotency-Key", "k-1").json(body).send();
    let (first, second) = tokio::join!(send(&body), send(&body));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (201, 201));
    let (first, second): (Value, Value) = (first.json().await.unwrap(), second.json().await.unwrap());
    assert_eq!(first["sandbox_id"], second["sandbox_id"]);
    let (status, wrong) =
        error(send(&json!({ "profile": "profile.test", "ttl": "5m" })).await.unwrap()).await;
    assert_eq!((status, wrong["code"].as_str()), (409, Some("idempotency_mismatch")));
}

#[tokio::test]
async fn an_exec_is_run_once() {
    let server = Server::start().await;
    let id = server.create().await;
    let path = format!("/v1/sandboxes/{id}/execs");
    let send = |body: Value| server.post(&path).header("Idempotency-Key", "k-2").json(&body).send();
    let body = json!({ "command": "echo x >> count; wc -l < count" });
    let first = send(body.clone()).await.unwrap().text().await.unwrap();
    let again = send(body.clone()).await.unwrap();
    assert_eq!(again.headers()["idempotency-replayed"], "true");
    assert_eq!(again.text().await.unwrap(), first);
    assert_eq!(error(send(json!({ "command": "true" })).await.unwrap()).await.0, 409);
    assert_eq!(server.sh(&id, "wc -l < count").await["stdout"], "1\n");
}

#[tokio::test]
async fn one_that_is_under_way_is_not_started_again() {
    let server = Server::start().await;
    let id = server.create().await;
    let path = format!("/v1/sandboxes/{id}/execs");
    let send = || {
        let body = json!({ "command": "sleep 1" });
        server.post(&path).header("Idempotency-Key", "k-3").json(&body).send()
    };
    let late = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        send().await
    };
    let (first, second) = tokio::join!(send(), late);
    assert_eq!(first.unwrap().status(), 200);
    let second = second.unwrap();
    assert_eq!(second.headers()["retry-after"], "1");
    assert_eq!(error(second).await.1["code"], "conflict");
}

#[tokio::test]
async fn a_stream_is_run_once_and_not_kept() {
    let server = Server::start().await;
    let id = server.create().await;
    let path = format!("/v1/sandboxes/{id}/execs");
    let send = || {
        let request =
            server.post(&path).header("Idempotency-Key", "k-4").header("Accept", "application/x-ndjson");
        request.json(&json!({ "command": "echo x >> count" })).send()
    };
    assert_eq!(send().await.unwrap().text().await.unwrap().lines().count(), 1);
    let again = send().await.unwrap();
    assert_eq!(again.status(), 409);
    assert_eq!(again.json::<Value>().await.unwrap()["error"]["code"], "conflict");
    assert_eq!(server.sh(&id, "wc -l < count").await["stdout"], "1\n");
}

#[tokio::test]
async fn one_that_broke_off_is_not_done_again() {
    let server = Server::start().await;
    let id = server.create().await;
    let path = format!("/v1/sandboxes/{id}/execs");
    let body = json!({ "command": "echo x >> count; sleep 60" });
    let send = || server.post(&path).header("Idempotency-Key", "k-5").json(&body);
    let broken = send().timeout(Duration::from_millis(400)).send().await;
    assert!(broken.is_err());
    tokio::time::sleep(Duration::from_millis(300)).await;
    let again = send().timeout(Duration::from_secs(5)).send().await.unwrap();
    assert_eq!(again.status(), 409);
    assert!(again.text().await.unwrap().contains("broke off"));
    assert_eq!(server.sh(&id, "wc -l < count").await["stdout"], "1\n");
}

#[tokio::test]
async fn one_that_was_refused_may_be_tried_again() {
    let server = Server::start().await;
    let id = server.create().await;
    let path = format!("/v1/sandboxes/{id}/extend");
    let send =
        || server.post(&path).header("Idempotency-Key", "k-6").json(&json!({ "duration": "9h" })).send();
    assert_eq!(error(send().await.unwrap()).await.1["code"], "ttl_above_max");
    assert_eq!(error(send().await.unwrap()).await.1["code"], "ttl_above_max");
}

#[tokio::test]
async fn a_recreate_is_done_once() {
    let server = Server::start().await;
    let id = server.create().await;
    let path = format!("/v1/sandboxes/{id}/recreate");
    let send = || server.post(&path).header("Idempotency-Key", "k-7").send();
    let first: Value = send().await.unwrap().json().await.unwrap();
    let second: Value = send().await.unwrap().json().await.unwrap();
    assert_eq!(first["sandbox_id"], second["sandbox_id"]);
    assert_eq!(server.fake.living().len(), 1);
}

#[tokio::test]
async fn keys_that_cannot_be_are_refused() {
    let server = Server::start().await;
    for key in ["", "a b", &"x".repeat(256)] {
        let answer = server.post("/v1/sandboxes").header("Idempotency-Key", key).send().await.unwrap();
        assert_eq!(error(answer).await.0, 400, "{key:?}");
    }
}
