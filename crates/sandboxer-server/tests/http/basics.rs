//! The life of a sandbox over HTTP, and the forms of answers.

use serde_json::{Value, json};

use crate::support::{Server, error, eventually};

#[tokio::test]
async fn from_create_to_destroy() {
    let server = Server::start().await;
    let created =
        server.post("/v1/sandboxes").json(&json!({ "profile": "profile.test", "labels": { "a": "b" } }));
    let created = created.send().await.unwrap();
    assert_eq!(created.status(), 201);
    let location = created.headers()["location"].to_str().unwrap().to_owned();
    let sandbox: Value = created.json().await.unwrap();
    let id = sandbox["sandbox_id"].as_str().unwrap();
    assert_eq!(location, format!("/v1/sandboxes/{id}"));
    assert_eq!(sandbox["state"], "ready");
    assert_eq!(sandbox["profile"], "profile.test@1.0.0");

    let got: Value = server.get(&location).send().await.unwrap().json().await.unwrap();
    assert_eq!(got["sandbox_id"], id);
    let said = server.sh(id, "echo hello").await;
    assert_eq!((said["stdout"].as_str(), said["exit_code"].as_i64()), (Some("hello\n"), Some(0)));
    let got: Value = server.get(&location).send().await.unwrap().json().await.unwrap();
    assert_eq!(got["state"], "active");

    for _ in 0..2 {
        let gone = server.http.delete(server.url(&location)).send().await.unwrap();
        assert_eq!(gone.status(), 200);
        assert_eq!(gone.json::<Value>().await.unwrap()["state"], "destroyed");
    }
    assert!(server.fake.living().is_empty());
}

#[tokio::test]
async fn a_dry_run_plans_and_creates_nothing() {
    let server = Server::start().await;
    let body = json!({ "profile": "profile.test" });
    for path in ["/v1/sandboxes?dry_run=true", "/v1/route"] {
        let plan = server.post(path).json(&body).send().await.unwrap();
        assert_eq!(plan.status(), 200);
        assert_eq!(plan.json::<Value>().await.unwrap()["extension"], "ext.fake");
    }
    let page: Value = server.get("/v1/sandboxes?all=true").send().await.unwrap().json().await.unwrap();
    assert_eq!(page["items"], json!([]));
}

#[tokio::test]
async fn an_async_create_answers_at_once_and_gets_ready() {
    let server = Server::start().await;
    let body = json!({ "profile": "profile.test", "inputs": { "delay_ms": "200" } });
    let accepted =
        server.post("/v1/sandboxes").header("Prefer", "respond-async").json(&body).send().await.unwrap();
    assert_eq!(accepted.status(), 202);
    let path = accepted.headers()["location"].to_str().unwrap().to_owned();
    assert_eq!(accepted.json::<Value>().await.unwrap()["state"], "provisioning");
    for _ in 0..100 {
        let now: Value = server.get(&path).send().await.unwrap().json().await.unwrap();
        if now["state"] == "ready" {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("it never got ready");
}

#[tokio::test]
async fn a_shared_sandbox_is_given_back() {
    let server = Server::start().await;
    let body = json!({ "profile": "profile.test", "scope": "shared" });
    let first = server.post("/v1/sandboxes").json(&body).send().await.unwrap();
    assert_eq!(first.status(), 201);
    let second = server.post("/v1/sandboxes").json(&body).send().await.unwrap();
    assert_eq!(second.status(), 200);
    let (first, second): (Value, Value) = (first.json().await.unwrap(), second.json().await.unwrap());
    assert_eq!(first["sandbox_id"], second["sandbox_id"]);
    assert_eq!(second["reused"], true);
}

#[tokio::test]
async fn a_caller_that_goes_away_cancels_its_create() {
    let server = Server::start().await;
    let body = json!({ "profile": "profile.test", "inputs": { "delay_ms": "60000" } }).to_string();
    let request = format!(
        "POST /v1/sandboxes HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        server.address,
        body.len()
    );
    let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
    eventually("provisioning began", || !server.fake.living().is_empty()).await;
    drop(stream);
    eventually("it was removed", || server.fake.living().is_empty()).await;
    let mut page = Value::Null;
    for _ in 0..100 {
        page = server.get("/v1/sandboxes?all=true").send().await.unwrap().json().await.unwrap();
        if page["items"][0]["state"] == "destroyed" {
            assert_eq!(page["items"][0]["reason"], "cancelled");
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("it was not recorded: {page}");
}

#[tokio::test]
async fn recreate_extend_and_expire() {
    let server = Server::start().await;
    let id = server.create().await;
    let path = format!("/v1/sandboxes/{id}");
    let longer =
        server.post(&format!("{path}/extend")).json(&json!({ "duration": "30m" })).send().await.unwrap();
    assert_eq!(longer.status(), 200);
    let answer =
        server.post(&format!("{path}/extend")).json(&json!({ "duration": "2d" })).send().await.unwrap();
    assert_eq!(error(answer).await.1["code"], "ttl_above_max");
    let answer =
        server.post(&format!("{path}/extend")).json(&json!({ "duration": "soon" })).send().await.unwrap();
    assert_eq!(error(answer).await.0, 400);
    let again = server.post(&format!("{path}/recreate")).send().await.unwrap();
    assert_eq!(again.status(), 201);
    assert_ne!(again.json::<Value>().await.unwrap()["sandbox_id"], id.as_str());
    let page: Value = server.post("/v1/expire").send().await.unwrap().json().await.unwrap();
    assert_eq!(page["items"], json!([]));
}

#[tokio::test]
async fn pages_are_whole_and_without_doubles() {
    let server = Server::start().await;
    let mut made = Vec::new();
    for _ in 0..7 {
        made.push(server.create().await);
    }
    let (mut seen, mut query) = (Vec::new(), "limit=3".to_owned());
    loop {
        let page: Value =
            server.get(&format!("/v1/sandboxes?{query}")).send().await.unwrap().json().await.unwrap();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 3);
        seen.extend(items.iter().map(|item| item["sandbox_id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        query = format!("limit=3&cursor={next}");
    }
    made.reverse();
    assert_eq!(seen, made);
    for bad in ["limit=0", "limit=1001", "limit=x", "cursor=@@@", "state=redy", "label=x", "colour=red"] {
        let answer = server.get(&format!("/v1/sandboxes?{bad}")).send().await.unwrap();
        assert_eq!(error(answer).await.0, 400, "{bad}");
    }
}

#[tokio::test]
async fn the_catalog_and_the_host() {
    let server = Server::start().await;
    let profile: Value = server.get("/v1/profiles/profile.test").send().await.unwrap().json().await.unwrap();
    assert_eq!(profile["available"], true);
    let profiles: Value = server.get("/v1/profiles").send().await.unwrap().json().await.unwrap();
    assert!(profiles["items"].as_array().unwrap().len() > 1);
    let answer = server.get("/v1/profiles/profile.tset").send().await.unwrap();
    let (status, wrong) = error(answer).await;
    assert_eq!((status, wrong["code"].as_str()), (404, Some("profile_not_found")));
    assert!(wrong["hint"].as_str().unwrap().contains("profile.test"));
    let extension: Value = server.get("/v1/extensions/ext.fake").send().await.unwrap().json().await.unwrap();
    assert_eq!(extension["check"]["ok"], true);
    let hosts: Value = server.get("/v1/hosts").send().await.unwrap().json().await.unwrap();
    assert_eq!(hosts["items"][0]["name"], "local");
    let id = server.create().await;
    let host: Value = server.get("/v1/inspect/host").send().await.unwrap().json().await.unwrap();
    assert_eq!(host["facts"]["kernel"]["release"], "test");
    let seen: Value =
        server.get(&format!("/v1/inspect/sandboxes/{id}")).send().await.unwrap().json().await.unwrap();
    assert_eq!(seen["backend"]["alive"], true);
}

#[tokio::test]
async fn health_metrics_and_the_page() {
    let server = Server::start().await;
    let id = server.create().await;
    server.sh(&id, "true").await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.get(path).send().await.unwrap().status(), 200, "{path}");
    }
    let index = server.get("/").send().await.unwrap();
    assert!(index.headers()["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
    assert!(index.text().await.unwrap().contains("/openapi.json"));
    let text = server.get("/metrics").send().await.unwrap().text().await.unwrap();
    for line in [
        "sandboxer_http_requests_total{method=\"POST\",route=\"/v1/sandboxes/{id}/execs\",status=\"200\"} 1",
        "sandboxer_sandboxes{state=\"active\"} 1",
        "sandboxer_creates_total{outcome=\"ready\"} 1",
        "sandboxer_execs_total 1",
        "sandboxer_build_info{version=",
        "sandboxer_http_request_duration_seconds_bucket{",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn request_ids_are_kept_or_made() {
    let server = Server::start().await;
    let answer = server.get("/healthz").header("X-Request-Id", "mine-1").send().await.unwrap();
    assert_eq!(answer.headers()["x-request-id"], "mine-1");
    let answer = server.get("/v1/sandboxes/sbx_x").header("X-Request-Id", "mine 2 <b>").send().await.unwrap();
    assert_ne!(error(answer).await.1["request_id"], "mine 2 <b>");
}
