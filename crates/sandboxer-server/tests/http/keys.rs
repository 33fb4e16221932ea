//! API keys over HTTP.

use serde_json::{Value, json};

use crate::support::{Server, error};

#[tokio::test]
async fn made_listed_used_and_revoked() {
    let server = Server::start().await;
    let body = json!({ "name": "boss", "actor": "adm" });
    let made = server.post("/v1/keys").json(&body).send().await.unwrap();
    assert_eq!(made.status(), 201);
    let made: Value = made.json().await.unwrap();
    let (key_id, secret) = (made["key_id"].as_str().unwrap(), made["secret"].as_str().unwrap());
    assert!(secret.starts_with("sbk_") && made.get("hash").is_none());
    // The door is closed at once.
    assert_eq!(error(server.get("/v1/keys").send().await.unwrap()).await.0, 401);
    let list = server.get("/v1/keys").bearer_auth(secret).send().await.unwrap().text().await.unwrap();
    assert!(list.contains(key_id) && !list.contains(secret) && !list.contains("hash"));
    let url = server.url(&format!("/v1/keys/{key_id}"));
    let revoked: Value =
        server.http.delete(url).bearer_auth(secret).send().await.unwrap().json().await.unwrap();
    assert!(revoked["revoked_at"].is_string());
    assert_eq!(error(server.get("/v1/keys").bearer_auth(secret).send().await.unwrap()).await.0, 401);
    // With the last key gone the server's own user is let in again.
    assert_eq!(server.get("/v1/keys").send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_repeat_makes_no_second_key_and_shows_no_secret() {
    let server = Server::start().await;
    let body = json!({ "name": "boss", "actor": "adm" });
    let first = server.post("/v1/keys").header("Idempotency-Key", "k").json(&body).send().await.unwrap();
    let first: Value = first.json().await.unwrap();
    let secret = first["secret"].as_str().unwrap();
    // The repeat has another caller, and so another scope; the same caller is one with the key.
    let send =
        || server.post("/v1/keys").bearer_auth(secret).header("Idempotency-Key", "k").json(&body).send();
    let second: Value = send().await.unwrap().json().await.unwrap();
    let third = send().await.unwrap();
    assert_eq!(third.status(), 200);
    let third: Value = third.json().await.unwrap();
    assert_eq!(second["key_id"], third["key_id"]);
    assert!(second["secret"].is_string() && third.get("secret").is_none());
}

#[tokio::test]
async fn bad_wishes_are_refused() {
    let server = Server::start().await;
    for body in [
        json!({ "name": "", "actor": "adm" }),
        json!({ "name": "x", "actor": "root" }),
        json!({ "name": "x" }),
        json!({ "name": "x", "actor": "adm", "expires_in": "never" }),
    ] {
        assert_eq!(error(server.post("/v1/keys").json(&body).send().await.unwrap()).await.0, 400, "{body}");
    }
}
