//! Who gets in.

use std::os::unix::process::CommandExt;
use std::process::Command;

use sandboxer_core::Actor;
use sandboxer_engine::Caller;
use sandboxer_server::{ServeOptions, serve};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{self, Server, error};

const PUBLIC: [&str; 5] = ["/", "/docs/{page}", "/healthz", "/readyz", "/openapi.json"];

#[tokio::test]
async fn without_keys_the_own_user_is_the_admin() {
    let server = Server::start().await;
    for path in ["/v1/sandboxes", "/v1/keys", "/v1/inspect/host", "/metrics"] {
        assert_eq!(server.get(path).send().await.unwrap().status(), 200, "{path}");
    }
}

#[tokio::test]
async fn a_key_that_is_sent_must_be_valid() {
    let server = Server::start().await;
    for key in ["sbk_wrong", "", "nonsense"] {
        let answer = server.get("/v1/sandboxes").header("X-API-Key", key).send().await.unwrap();
        assert_eq!(answer.headers()["www-authenticate"], "Bearer realm=\"sandboxer\"");
        assert_eq!(error(answer).await.0, 401, "{key:?}");
    }
}

#[tokio::test]
async fn other_hosts_and_foreign_pages_do_not_get_in() {
    let server = Server::start().await;
    let port = server.address.port();
    let own = format!("http://127.0.0.1:{port}");
    for (host, origin, status) in [
        (format!("127.0.0.1:{port}"), None, 200),
        (format!("localhost:{port}"), Some(own.as_str()), 200),
        (format!("[::1]:{port}"), None, 200),
        (format!("evil.example:{port}"), None, 401),
        (format!("127.0.0.1:{port}"), Some("http://evil.example"), 401),
        (format!("127.0.0.1:{port}"), Some("null"), 401),
        (format!("127.0.0.1:{port}"), Some("http://localhost:1"), 401),
    ] {
        let origin = origin.map(|origin| format!("Origin: {origin}\r\n")).unwrap_or_default();
        let request =
            format!("GET /v1/sandboxes HTTP/1.1\r\nHost: {host}\r\n{origin}Connection: close\r\n\r\n");
        let answer = server.raw(request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{host} {origin}: {answer}");
    }
    let without = server.raw(b"GET /v1/sandboxes HTTP/1.0\r\n\r\n").await;
    assert!(without.contains(" 401"), "{without}");
}

#[tokio::test]
async fn roles_and_ownership() {
    let server = Server::start().await;
    let (adm, agt, other, atm) = (
        server.key(Actor::Adm).await,
        server.key(Actor::Agt).await,
        server.key(Actor::Agt).await,
        server.key(Actor::Atm).await,
    );
    let made = server.post("/v1/sandboxes").bearer_auth(&agt).json(&json!({ "profile": "profile.test" }));
    let made: Value = made.send().await.unwrap().json().await.unwrap();
    let one = format!("/v1/sandboxes/{}", made["sandbox_id"].as_str().unwrap());
    for (key, path, status) in [
        (&agt, one.as_str(), 200),
        (&other, &one, 404),
        (&adm, &one, 200),
        (&atm, &one, 200),
        (&agt, "/v1/keys", 403),
        (&atm, "/v1/keys", 403),
        (&adm, "/v1/keys", 200),
        (&agt, "/v1/inspect/host", 403),
        (&atm, "/v1/inspect/host", 200),
        (&agt, "/v1/inspect/stale", 403),
        (&atm, "/v1/inspect/stale", 200),
        (&agt, "/v1/hosts", 403),
        (&atm, "/v1/hosts", 200),
        (&agt, "/v1/credits", 200),
        (&agt, "/v1/credits/entries", 200),
        (&agt, "/v1/credits/entries?account=all", 403),
        (&agt, "/v1/credits?account=org:default", 403),
        (&atm, "/v1/credits/entries?account=all", 200),
        (&agt, "/v1/meters", 200),
        (&agt, "/v1/credits/audit", 403),
        (&atm, "/v1/credits/audit", 200),
        (&agt, "/v1/credits/provider-keys", 403),
        (&atm, "/v1/credits/provider-keys", 403),
        (&adm, "/v1/credits/provider-keys", 200),
        (&atm, "/v1/webhooks", 403),
        (&adm, "/v1/webhooks", 200),
        (&atm, "/v1/events/dead", 403),
        (&adm, "/v1/events/dead", 200),
        (&agt, "/metrics", 403),
        (&atm, "/metrics", 200),
    ] {
        assert_eq!(server.get(path).bearer_auth(key).send().await.unwrap().status(), status, "{path}");
    }
    for (path, own) in [("/v1/sandboxes", 1), ("/v1/events", 3)] {
        let count = async |key: &str| {
            let page: Value = server.get(path).bearer_auth(key).send().await.unwrap().json().await.unwrap();
            page["items"].as_array().unwrap().len()
        };
        assert_eq!((count(&agt).await, count(&other).await, count(&adm).await), (own, 0, own), "{path}");
    }
    assert_eq!(server.get(&one).send().await.unwrap().status(), 401);
}

/// Every path of the document, with every method, wants a key; the few public ones do not.
#[tokio::test]
async fn nothing_is_forgotten() {
    let server = Server::start().await;
    server.key(Actor::Adm).await;
    let document: Value = server.get("/openapi.json").send().await.unwrap().json().await.unwrap();
    let mut tried = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in ["get", "head", "put", "post", "delete"] {
            if item.get(method).is_none() {
                continue;
            }
            let filled = path
                .replace("{id}", "sbx_00000000000000000000000000")
                .replace("{exec}", "x")
                .replace("{page}", "api.md");
            let method = reqwest::Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let status = server.http.request(method, server.url(&filled)).send().await.unwrap().status();
            assert_eq!(status, if PUBLIC.contains(&path.as_str()) { 200 } else { 401 }, "{path}");
            tried += 1;
        }
    }
    assert!(tried > 35, "{tried}");
}

/// A client of another user: python, because a process is what has a uid.
fn status_as(uid: u32, url: &str) -> Option<String> {
    let script = format!(
        "import urllib.request, urllib.error\ntry:\n  print(urllib.request.urlopen({url:?}).status)\n\
         except urllib.error.HTTPError as e:\n  print(e.code)"
    );
    let output = Command::new("python3").args(["-c", &script]).env_clear().uid(uid).gid(uid).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_user_of_the_machine_does_not_get_in() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can run a client as another user");
        return;
    }
    let server = Server::start().await;
    let url = server.url("/v1/sandboxes");
    let Some(own) = tokio::task::spawn_blocking({
        let url = url.clone();
        move || status_as(0, &url)
    })
    .await
    .unwrap() else {
        eprintln!("skipped: there is no python3");
        return;
    };
    assert_eq!(own, "200");
    let other = tokio::task::spawn_blocking(move || status_as(61_234, &url)).await.unwrap();
    assert_eq!(other.as_deref(), Some("401"));
}

/// A socket whose process is gone looks like root's. It must not be taken for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_user_that_leaves_at_once_does_nothing() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can run a client as another user");
        return;
    }
    let server = Server::start().await;
    let script = format!(
        "import socket\nfor i in range(200):\n  s = socket.create_connection(('127.0.0.1', {port}))\n  \
         s.sendall(b'POST /v1/sandboxes?dry_run=false HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n\
         Prefer: respond-async\\r\\nContent-Type: application/json\\r\\nContent-Length: 26\\r\\n\\r\\n\
         {{\"profile\":\"profile.test\"}}')\n  s.close()",
        port = server.address.port()
    );
    let ran = tokio::task::spawn_blocking(move || {
        Command::new("python3").args(["-c", &script]).env_clear().uid(61_234).gid(61_234).status()
    });
    let Ok(status) = ran.await.unwrap() else {
        eprintln!("skipped: there is no python3");
        return;
    };
    assert!(status.success());
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let page: Value = server.get("/v1/sandboxes?all=true").send().await.unwrap().json().await.unwrap();
    assert_eq!(page["items"], json!([]));
}

#[tokio::test]
async fn an_open_door_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, _) = support::engine(folder.path()).await;
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let options = ServeOptions::new(listen.parse().unwrap());
        let refused = serve(engine.clone(), options, CancellationToken::new()).await.unwrap_err();
        assert_eq!(refused.kind().code(), "denied");
        assert!(refused.hint().unwrap().contains("keys create"));
    }
    // A key opens it for those who have it, and for nobody on loopback.
    let key = engine
        .key_create(&Caller::local_admin(), "x", Actor::Adm, None, Default::default())
        .await
        .unwrap()
        .secret;
    let (told, bound) = tokio::sync::oneshot::channel();
    let options = ServeOptions { on_bound: Some(told), ..ServeOptions::new(([0, 0, 0, 0], 0).into()) };
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(serve(engine, options, shutdown.clone()));
    let url = format!("http://127.0.0.1:{}/v1/sandboxes", bound.await.unwrap().port());
    let http = support::client();
    assert_eq!(http.get(&url).send().await.unwrap().status(), 401);
    assert_eq!(http.get(&url).bearer_auth(key).send().await.unwrap().status(), 200);
    drop(http);
    shutdown.cancel();
    serving.await.unwrap().unwrap();
}
