//! Hosts over HTTP: added with a confirmed key, listed, checked, removed; and what is stale.

use sandboxer_core::Actor;
use serde_json::{Value, json};

use crate::support::Server;

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ5GUBGGxKm0j4rfEFmBRPYTHB7XFP9SCXLaTG8SIyzC";

async fn send(request: reqwest::RequestBuilder) -> (u16, Value) {
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

#[tokio::test]
async fn a_host_comes_and_goes() {
    let server = Server::start().await;
    let body =
        json!({ "name": "alpha", "address": "ssh://ops@10.0.0.4", "host_keys": [KEY], "region": "eu" });
    let (status, made) = send(server.post("/v1/hosts").json(&body)).await;
    assert_eq!((status, &made["address"]), (201, &json!("ssh://ops@10.0.0.4:22")), "{made}");
    assert!(made["fingerprints"][0].as_str().unwrap().starts_with("SHA256:"));
    let (status, again) = send(server.post("/v1/hosts").json(&body)).await;
    assert_eq!((status, &again["error"]["code"]), (409, &json!("conflict")));
    let (_, list) = send(server.get("/v1/hosts")).await;
    assert_eq!((&list["items"][0]["name"], &list["items"][1]["name"]), (&json!("local"), &json!("alpha")));
    let (status, _) = send(server.http.delete(server.url("/v1/hosts/alpha"))).await;
    assert_eq!(status, 200);
    let (status, gone) = send(server.http.delete(server.url("/v1/hosts/alpha"))).await;
    assert_eq!((status, &gone["error"]["code"]), (404, &json!("host_not_found")));
    let (status, _) = send(server.http.delete(server.url("/v1/hosts/local"))).await;
    assert_eq!(status, 409);
}

#[tokio::test]
async fn the_same_key_adds_once() {
    let server = Server::start().await;
    let body = json!({ "name": "alpha", "address": "ssh://ops@10.0.0.4", "host_keys": [KEY] });
    for _ in 0..2 {
        let (status, made) = send(server.post("/v1/hosts").header("idempotency-key", "k").json(&body)).await;
        assert_eq!((status, &made["name"]), (201, &json!("alpha")), "{made}");
    }
}

#[tokio::test]
async fn what_cannot_be_a_host_is_refused() {
    let server = Server::start().await;
    for (body, status) in [
        (json!({ "name": "a", "address": "nowhere", "host_keys": [KEY] }), 400),
        (json!({ "name": "-a", "address": "ssh://u@h", "host_keys": [KEY] }), 400),
        (json!({ "name": "a", "address": "ssh://u@-h", "host_keys": [KEY] }), 400),
        (json!({ "name": "a", "address": "ssh://u@h", "host_keys": ["nonsense"] }), 400),
        (json!({ "name": "a", "address": "ssh://u@h", "fingerprint": "SHA256:x" }), 400),
        (json!({ "name": "a", "address": "ssh://u@h", "hostkeys": [KEY] }), 400),
        (json!({ "name": "a", "address": "ssh://u@h", "host_keys": [KEY], "labels": { "k k": "v" } }), 400),
        (json!({ "name": "a", "address": "ssh://u@h", "host_keys": [KEY], "capacity": { "cpu": -1 } }), 400),
        (json!({ "name": "a", "address": "ssh://u@h", "host_keys": [KEY], "identity_file": "../x" }), 400),
        (json!({ "name": "a", "address": "ssh://u@127.0.0.1:1", "accept_key": true }), 503),
    ] {
        let (got, answer) = send(server.post("/v1/hosts").json(&body)).await;
        assert_eq!(got, status, "{body} {answer}");
    }
    let (_, list) = send(server.get("/v1/hosts")).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn only_admins_manage_and_operators_look() {
    let server = Server::start().await;
    let (adm, atm, agt) =
        (server.key(Actor::Adm).await, server.key(Actor::Atm).await, server.key(Actor::Agt).await);
    let body = json!({ "name": "alpha", "address": "ssh://ops@10.0.0.4", "host_keys": [KEY] });
    for (key, status) in [(&agt, 403), (&atm, 403), (&adm, 201)] {
        assert_eq!(send(server.post("/v1/hosts").bearer_auth(key).json(&body)).await.0, status);
    }
    for (key, status) in [(&agt, 403), (&atm, 200)] {
        assert_eq!(send(server.post("/v1/hosts/local/check").bearer_auth(key)).await.0, status);
        assert_eq!(send(server.post("/v1/reap-stale").bearer_auth(key)).await.0, status);
    }
    assert_eq!(send(server.http.delete(server.url("/v1/hosts/alpha")).bearer_auth(&atm)).await.0, 403);
}

#[tokio::test]
async fn one_host_can_be_looked_at_by_name() {
    let server = Server::start().await;
    assert_eq!(send(server.get("/v1/inspect/host?host=local")).await.1["host"], "local");
    assert_eq!(send(server.get("/v1/inspect/host?host=mars")).await.1["error"]["code"], "host_not_found");
    assert_eq!(send(server.get("/v1/inspect/stale?host=mars")).await.0, 404);
    let (status, stale) = send(server.get("/v1/inspect/stale")).await;
    assert_eq!((status, &stale["applied"]), (200, &json!(false)));
    assert_eq!(send(server.post("/v1/reap-stale").json(&json!({ "aply": true }))).await.0, 400);
}
