//! Pause, snapshots, restore and fork over HTTP.

use sandboxer_core::Actor;
use serde_json::{Value, json};

use crate::support::{Server, error};

async fn ok(answer: reqwest::Response, status: u16) -> Value {
    let got = answer.status().as_u16();
    let body: Value = answer.json().await.unwrap();
    assert_eq!(got, status, "{body}");
    body
}

#[tokio::test]
async fn a_sandbox_is_paused_and_goes_on() {
    let server = Server::start().await;
    let id = server.create().await;
    for _ in 0..2 {
        let paused = server.post(&format!("/v1/sandboxes/{id}/pause")).send().await.unwrap();
        assert_eq!(ok(paused, 200).await["state"], "paused");
    }
    let exec = server.post(&format!("/v1/sandboxes/{id}/execs")).json(&json!({ "command": "true" }));
    let (status, refused) = error(exec.send().await.unwrap()).await;
    assert_eq!((status, &refused["code"]), (409, &json!("illegal_state")));
    assert_eq!(refused["hint"], format!("`sandboxer resume {id}` first"));
    let files = server.get(&format!("/v1/sandboxes/{id}/files/list?path=/")).send().await.unwrap();
    assert_eq!(error(files).await.0, 409);
    let port = server.get(&format!("/v1/sandboxes/{id}/ports/9/")).send().await.unwrap();
    assert_eq!(error(port).await.0, 409);
    let resumed = server.post(&format!("/v1/sandboxes/{id}/resume")).send().await.unwrap();
    assert_eq!(ok(resumed, 200).await["state"], "ready");
    server.sh(&id, "true").await;
}

#[tokio::test]
async fn a_snapshot_is_taken_listed_restored_and_deleted() {
    let server = Server::start().await;
    let id = server.create().await;
    server.sh(&id, "echo kept > file").await;
    let take = |name: &str| {
        server
            .post(&format!("/v1/sandboxes/{id}/snapshots"))
            .header("idempotency-key", "take-1")
            .json(&json!({ "name": name }))
            .send()
    };
    let snapshot = ok(take("first").await.unwrap(), 201).await;
    let again = take("first").await.unwrap();
    assert_eq!(again.headers()["idempotency-replayed"], "true");
    assert_eq!(again.json::<Value>().await.unwrap(), snapshot);
    assert_eq!(error(take("other").await.unwrap()).await.0, 409);
    assert_eq!((&snapshot["name"], &snapshot["sandbox_id"]), (&json!("first"), &json!(id)));
    let at = format!("/v1/snapshots/{}", snapshot["snapshot_id"].as_str().unwrap());
    assert_eq!(ok(server.get(&at).send().await.unwrap(), 200).await, snapshot);
    server.http.delete(server.url(&format!("/v1/sandboxes/{id}"))).send().await.unwrap();
    for query in ["", "?limit=1", &format!("?sandbox={id}")] {
        let page = ok(server.get(&format!("/v1/snapshots{query}")).send().await.unwrap(), 200).await;
        assert_eq!(page, json!({ "items": [snapshot] }), "{query}");
    }

    let restore =
        || server.post(&format!("{at}/restore")).header("idempotency-key", "r").json(&json!({ "ttl": "5m" }));
    let answer = restore().send().await.unwrap();
    assert!(answer.headers().contains_key("location"));
    let copy = ok(answer, 201).await;
    assert_eq!((&copy["ttl"], &copy["profile"]), (&json!("5m"), &snapshot["profile"]));
    let copy_id = copy["sandbox_id"].as_str().unwrap();
    assert_eq!(server.sh(copy_id, "cat file").await["stdout"], "kept\n");
    let again: Value = restore().send().await.unwrap().json().await.unwrap();
    assert_eq!(again["sandbox_id"], copy["sandbox_id"]);
    let from = json!({ "from": snapshot["snapshot_id"], "extension": "ext.other" });
    let refused = server.post("/v1/sandboxes").json(&from).send().await.unwrap();
    assert_eq!(error(refused).await.0, 400);
    let plan = json!({ "from": snapshot["snapshot_id"] });
    let plan = server.post("/v1/sandboxes?dry_run=true").json(&plan).send().await.unwrap();
    assert_eq!(ok(plan, 200).await["extension"], "ext.fake");

    assert_eq!(ok(server.http.delete(server.url(&at)).send().await.unwrap(), 200).await, snapshot);
    for gone in [server.get(&at), server.http.delete(server.url(&at)), server.post(&format!("{at}/restore"))]
    {
        let (status, body) = error(gone.send().await.unwrap()).await;
        assert_eq!((status, &body["code"]), (404, &json!("snapshot_not_found")));
    }
}

#[tokio::test]
async fn a_fork_gives_copies() {
    let server = Server::start().await;
    let id = server.create().await;
    server.sh(&id, "echo one > file").await;
    let fork = |body: Value| server.post(&format!("/v1/sandboxes/{id}/fork")).json(&body).send();
    let forked = ok(fork(json!({ "count": 3 })).await.unwrap(), 201).await;
    let copies = forked["items"].as_array().unwrap();
    assert_eq!(copies.len(), 3);
    for copy in copies {
        let copy_id = copy["sandbox_id"].as_str().unwrap();
        assert_eq!(server.sh(copy_id, "cat file").await["stdout"], "one\n");
    }
    let page = ok(server.get("/v1/snapshots").send().await.unwrap(), 200).await;
    assert_eq!(page, json!({ "items": [] }), "the snapshot in between is gone");
    for bad in [json!({ "count": 0 }), json!({ "count": 33 }), json!({ "copies": 2 })] {
        assert_eq!(error(fork(bad).await.unwrap()).await.0, 400);
    }
}

#[tokio::test]
async fn agents_reach_only_their_own() {
    let server = Server::start().await;
    let (mine, theirs) = (server.key(Actor::Agt).await, server.key(Actor::Agt).await);
    let body = json!({ "profile": "profile.test" });
    let made = server.post("/v1/sandboxes").bearer_auth(&mine).json(&body).send().await.unwrap();
    let id = ok(made, 201).await["sandbox_id"].as_str().unwrap().to_owned();
    let taken =
        server.post(&format!("/v1/sandboxes/{id}/snapshots")).bearer_auth(&mine).send().await.unwrap();
    let snapshot = ok(taken, 201).await["snapshot_id"].as_str().unwrap().to_owned();
    for request in [
        server.post(&format!("/v1/sandboxes/{id}/pause")),
        server.post(&format!("/v1/sandboxes/{id}/fork")),
        server.get(&format!("/v1/sandboxes/{id}/ports/80/")),
        server.get(&format!("/v1/sandboxes/{id}/logs")),
        server.get(&format!("/v1/snapshots/{snapshot}")),
        server.post(&format!("/v1/snapshots/{snapshot}/restore")),
    ] {
        assert_eq!(error(request.bearer_auth(&theirs).send().await.unwrap()).await.0, 404);
    }
    let page = server.get("/v1/snapshots").bearer_auth(&theirs).send().await.unwrap();
    assert_eq!(ok(page, 200).await, json!({ "items": [] }));
}

#[tokio::test]
async fn logs_of_the_backend_are_given() {
    let server = Server::start().await;
    let id = server.create().await;
    let logs = server.get(&format!("/v1/sandboxes/{id}/logs")).send().await.unwrap();
    assert_eq!(logs.text().await.unwrap(), format!("log of {id}\n"));
}

#[tokio::test]
async fn a_create_tells_how_far_it_is() {
    let server = Server::start().await;
    let create = |inputs: Value| {
        let body = json!({ "profile": "profile.test", "inputs": inputs });
        server.post("/v1/sandboxes").header("accept", "application/x-ndjson").json(&body).send()
    };
    let told = |text: String| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let answer = create(json!({ "progress": "half way", "delay_ms": "50" })).await.unwrap();
    let records = told(answer.text().await.unwrap());
    assert_eq!(records[0], json!({ "type": "progress", "line": "half way" }));
    assert_eq!((records.len(), &records[1]["type"]), (2, &json!("sandbox")));
    let id = records[1]["sandbox"]["sandbox_id"].as_str().unwrap();
    let events: Value =
        server.get(&format!("/v1/sandboxes/{id}/events")).send().await.unwrap().json().await.unwrap();
    let kept =
        events["items"].as_array().unwrap().iter().find(|e| e["type"] == "dev.sandboxer.sandbox.progress");
    assert_eq!(kept.unwrap()["data"]["line"], "half way");
    let failed = told(create(json!({ "fail": "no luck" })).await.unwrap().text().await.unwrap());
    assert_eq!((failed.len(), &failed[0]["error"]["code"]), (1, &json!("no_backend")));
}
