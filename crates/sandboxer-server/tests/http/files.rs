//! Files and archives, streamed and bounded.

use serde_json::{Value, json};

use crate::support::{Server, error};

#[tokio::test]
async fn written_read_listed_moved_and_deleted() {
    let server = Server::start().await;
    let id = server.create().await;
    let base = format!("/v1/sandboxes/{id}/files");
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let put = server.http.put(server.url(&format!("{base}?path=/a/b%20c.bin&mode=0600"))).body(bytes.clone());
    assert_eq!(put.send().await.unwrap().status(), 204);
    let got = server.get(&format!("{base}?path=/a/b%20c.bin")).send().await.unwrap();
    assert_eq!(got.headers()["content-type"], "application/octet-stream");
    assert_eq!(got.headers()["x-content-type-options"], "nosniff");
    assert_eq!(got.bytes().await.unwrap(), bytes);
    let head = server.http.head(server.url(&format!("{base}?path=/a/b%20c.bin"))).send().await.unwrap();
    assert_eq!(head.status(), 200);
    assert_eq!(head.headers()["content-length"], "300000");
    assert_eq!(head.headers()["x-file-kind"], "file");
    assert_eq!(head.headers()["x-file-mode"], "0600");
    let stat: Value =
        server.get(&format!("{base}/stat?path=/a/b%20c.bin")).send().await.unwrap().json().await.unwrap();
    assert_eq!(stat["size"], 300_000);
    let moved = server.post(&format!("{base}/move")).json(&json!({ "from": "/a/b c.bin", "to": "/a/d" }));
    assert_eq!(moved.send().await.unwrap().status(), 204);
    let made = server.http.put(server.url(&format!("{base}?path=/a/folder&type=directory")));
    assert_eq!(made.send().await.unwrap().status(), 204);
    let list: Value = server.get(&format!("{base}/list?path=/a")).send().await.unwrap().json().await.unwrap();
    let mut names: Vec<_> =
        list["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["d", "folder"]);
    let gone =
        server.http.delete(server.url(&format!("{base}?path=/a&recursive=true"))).send().await.unwrap();
    assert_eq!(gone.status(), 204);
    assert_eq!(error(server.get(&format!("{base}?path=/a/d")).send().await.unwrap()).await.0, 404);
}

#[tokio::test]
async fn archives_go_in_and_out() {
    let server = Server::start().await;
    let id = server.create().await;
    server.sh(&id, "mkdir -p src/deep; echo one > src/deep/file").await;
    let base = format!("/v1/sandboxes/{id}/archive");
    let tar = server.get(&format!("{base}?path=/src")).send().await.unwrap();
    assert_eq!(tar.headers()["content-type"], "application/x-tar");
    let tar = tar.bytes().await.unwrap();
    let put = server.http.put(server.url(&format!("{base}?path=/copy"))).body(tar).send().await.unwrap();
    assert_eq!(put.status(), 204);
    assert_eq!(server.sh(&id, "cat copy/deep/file").await["stdout"], "one\n");
}

#[tokio::test]
async fn what_is_too_large_is_refused_and_leaves_nothing() {
    let server = Server::start_with(|limits| limits.upload = 100_000).await;
    let id = server.create().await;
    let url = server.url(&format!("/v1/sandboxes/{id}/files?path=/big"));
    let (status, wrong) = error(server.http.put(&url).body(vec![0; 100_001]).send().await.unwrap()).await;
    assert_eq!((status, wrong["code"].as_str()), (413, Some("too_large")));
    // Without a length it is found out on the way.
    let pieces = futures::stream::iter((0..12).map(|_| Ok::<_, std::io::Error>(vec![0_u8; 10_000])));
    let answer = server.http.put(&url).body(reqwest::Body::wrap_stream(pieces)).send().await.unwrap();
    assert_eq!(error(answer).await.0, 413);
    assert_eq!(server.sh(&id, "ls").await["stdout"], "");
    assert_eq!(server.http.put(&url).body(vec![0; 100_000]).send().await.unwrap().status(), 204);
}

#[tokio::test]
async fn a_stalled_upload_ends() {
    let server =
        Server::start_with(|limits| limits.upload_idle = std::time::Duration::from_millis(200)).await;
    let id = server.create().await;
    let url = server.url(&format!("/v1/sandboxes/{id}/files?path=/slow"));
    let stalled = futures::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let answer = server.http.put(&url).body(reqwest::Body::wrap_stream(stalled)).send().await.unwrap();
    assert!(error(answer).await.0 >= 400);
}

#[tokio::test]
async fn bad_parameters_are_named() {
    let server = Server::start().await;
    let id = server.create().await;
    let base = format!("/v1/sandboxes/{id}/files");
    for query in ["", "?path=", "?path=a%00b", "?path=/x&pth=/y", "?path=/x&path=/y"] {
        let (status, wrong) = error(server.get(&format!("{base}{query}")).send().await.unwrap()).await;
        assert_eq!((status, wrong["code"].as_str()), (400, Some("invalid_input")), "{query}");
    }
    for query in ["?path=/x&mode=99999", "?path=/x&mode=rw", "?path=/x&type=pipe"] {
        let answer = server.http.put(server.url(&format!("{base}{query}"))).body("x").send().await.unwrap();
        assert_eq!(error(answer).await.0, 400, "{query}");
    }
}
