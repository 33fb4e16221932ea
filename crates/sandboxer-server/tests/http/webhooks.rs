//! Webhooks over HTTP: made, looked at, tested against a real receiver, turned off and on, removed.

use sandboxer_engine::PrivateTargets;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::support::{Server, error};

/// Takes every request and passes it on.
async fn receiver() -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let (mut text, mut chunk) = (String::new(), [0_u8; 4_096]);
                loop {
                    let read = stream.read(&mut chunk).await.unwrap_or(0);
                    text.push_str(&String::from_utf8_lossy(&chunk[..read]));
                    let length = text
                        .to_ascii_lowercase()
                        .split("content-length: ")
                        .nth(1)
                        .and_then(|rest| rest.split("\r\n").next()?.parse::<usize>().ok());
                    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
                    if read == 0 || matches!((length, body), (Some(length), Some(body)) if body >= length) {
                        break;
                    }
                }
                let _ = sender.send(text);
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
            });
        }
    });
    (url, requests)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_the_first_to_the_last() {
    let server = Server::start().await;
    server.engine.allow_private_webhooks("127.0.0.1".parse::<PrivateTargets>().unwrap());
    let (url, mut requests) = receiver().await;
    let body = json!({ "url": url, "events": ["sandbox.*"], "description": "test" });
    let send = || server.post("/v1/webhooks").header("Idempotency-Key", "w").json(&body).send();
    let made = send().await.unwrap();
    assert_eq!(made.status(), 201);
    let made: Value = made.json().await.unwrap();
    assert!(made["secret"].as_str().unwrap().starts_with("whsec_"), "{made}");
    let again = send().await.unwrap();
    assert_eq!(again.status(), 200);
    let again: Value = again.json().await.unwrap();
    assert!(again.get("secret").is_none() && again["webhook_id"] == made["webhook_id"], "{again}");
    let id = made["webhook_id"].as_str().unwrap();
    let one = format!("/v1/webhooks/{id}");

    let post = async |word: &str| {
        let answer = server.post(&format!("{one}/{word}")).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{word}");
        answer.json::<Value>().await.unwrap()
    };
    assert_eq!(post("test").await["delivered"], true);
    let request = requests.recv().await.unwrap();
    assert!(request.contains("webhook-signature: v1,") && request.contains("webhook.test"), "{request}");

    server.create().await;
    let request = requests.recv().await.unwrap();
    assert!(request.contains("dev.sandboxer.sandbox.requested"), "{request}");

    let rotated = post("rotate").await;
    assert_ne!(rotated["secret"], made["secret"]);
    assert_eq!(rotated["secrets"].as_array().unwrap().len(), 2);
    assert_eq!(post("disable").await["enabled"], false);
    assert_eq!(post("enable").await["enabled"], true);
    let list = server.get("/v1/webhooks").send().await.unwrap().text().await.unwrap();
    assert!(list.contains(id) && !list.contains("whsec_"), "{list}");

    let event: Value = server.get("/v1/events?limit=1").send().await.unwrap().json().await.unwrap();
    let replay = json!({ "event_id": event["items"][0]["id"], "sink": id });
    let replayed = server.post("/v1/events/replay").json(&replay).send().await.unwrap();
    assert_eq!(replayed.json::<Value>().await.unwrap(), json!({ "replayed": 1 }));
    assert_eq!(error(server.post("/v1/events/replay").json(&json!({})).send().await.unwrap()).await.0, 400);
    let dead = format!("/v1/events/dead?sink={id}");
    let dead: Value = server.get(&dead).send().await.unwrap().json().await.unwrap();
    assert_eq!(dead["items"], json!([]));
    let nobody = server.get("/v1/events/dead?sink=state-hub").send().await.unwrap();
    assert_eq!(error(nobody).await.1["code"], "not_found", "no such hub was ever named to it");

    assert_eq!(server.get(&one).send().await.unwrap().status(), 200);
    let metrics = async || server.get("/metrics").send().await.unwrap().text().await.unwrap();
    assert!(metrics().await.contains(&format!("sandboxer_outbox_pending{{sink=\"{id}\"}}")));
    assert_eq!(server.http.delete(server.url(&one)).send().await.unwrap().status(), 200);
    assert_eq!(error(server.get(&one).send().await.unwrap()).await.0, 404);
    assert!(!metrics().await.contains(id), "what is gone leaves no number behind");
}

#[tokio::test]
async fn what_may_not_be_reached_is_refused() {
    let server = Server::start().await;
    for url in
        ["http://127.0.0.1:1/x", "https://10.0.0.1/x", "ftp://example.org", "nonsense", "https://[::1]/"]
    {
        let answer = server.post("/v1/webhooks").json(&json!({ "url": url })).send().await.unwrap();
        let (status, told) = error(answer).await;
        assert!(matches!(status, 400 | 403), "{url}: {told}");
    }
    let body = json!({ "url": "https://example.org", "events": ["**"] });
    assert_eq!(error(server.post("/v1/webhooks").json(&body).send().await.unwrap()).await.0, 400);
}
