//! The route and the estimate over HTTP: everything is told, nothing is made.

use sandboxer_core::Actor;
use serde_json::{Value, json};

use crate::support::{Server, error};

#[tokio::test]
async fn a_route_is_explained() {
    let server = Server::start_priced().await;
    let body = json!({ "profile": "profile.test", "ttl": "10m" });
    let plan: Value = server.post("/v1/route").json(&body).send().await.unwrap().json().await.unwrap();
    assert_eq!(plan["extension"], "ext.fake");
    let offer = &plan["route"]["offers"][0];
    assert_eq!(
        (&offer["accepted"], &offer["quote"]["per_hour"]),
        (&json!(true), &json!("0.36 USD")),
        "{plan:#}"
    );
    let body = json!({
        "profile": "profile.test",
        "route": { "constraints": { "max_cost_per_hour": "0.10" } }
    });
    let plan: Value = server.post("/v1/route").json(&body).send().await.unwrap().json().await.unwrap();
    assert_eq!((&plan["extension"], &plan["route"]["offers"][0]["accepted"]), (&Value::Null, &json!(false)));
    // A create says the same, with every reason.
    let (status, told) = error(server.post("/v1/sandboxes").json(&body).send().await.unwrap()).await;
    assert_eq!((status, told["code"].as_str()), (503, Some("no_backend")), "{told}");
    assert_eq!(told["details"]["offers"], plan["route"]["offers"], "the same offers");
    let body = json!({ "profile": "profile.test", "route": { "strategy": "cheapest" } });
    assert_eq!(error(server.post("/v1/route").json(&body).send().await.unwrap()).await.0, 400);
    assert!(server.fake.living().is_empty());
}

#[tokio::test]
async fn an_estimate_is_itemised_and_makes_nothing() {
    let server = Server::start_priced().await;
    let body = json!({ "profile": "profile.test", "duration": "10m" });
    let estimate: Value = server.post("/v1/estimate").json(&body).send().await.unwrap().json().await.unwrap();
    let quote = &estimate["quote"];
    assert_eq!(quote["amount"], "0.160000002 USD", "{estimate:#}");
    assert_eq!(quote["items"].as_array().unwrap().len(), 2);
    assert_eq!(estimate["route"]["offers"][0]["extension"], "ext.fake");
    for (body, status) in [
        (json!({ "profile": "profile.test" }), 400),
        (json!({ "profile": "profile.test", "duration": "soon" }), 400),
        (json!({ "profile": "profile.test", "duration": "0s" }), 400),
        (json!({ "profile": "profile.test", "duration": "30d" }), 400),
        (json!({ "profile": "profile.nothing", "duration": "1m" }), 404),
        (json!({ "profile": "profile.test", "duration": "1m", "host": "mars" }), 404),
    ] {
        let answer = server.post("/v1/estimate").json(&body).send().await.unwrap();
        assert_eq!(error(answer).await.0, status, "{body}");
    }
    let list: Value = server.get("/v1/sandboxes?all=true").send().await.unwrap().json().await.unwrap();
    assert_eq!(list["items"], json!([]));
}

/// A fault that one caller asks for would take the provider away from all others.
#[tokio::test]
async fn faults_are_asked_for_by_whoever_runs_the_server() {
    let server = Server::start_priced().await;
    let body = json!({ "profile": "profile.test", "duration": "1m", "inputs": { "stub": "create=402" } });
    let ask = |path: &str, key: Option<&str>| {
        let mut body = body.clone();
        if path != "/v1/estimate" {
            body.as_object_mut().unwrap().remove("duration");
        }
        let request = server.post(path).json(&body);
        key.into_iter().fold(request, |request, key| request.bearer_auth(key)).send()
    };
    for path in ["/v1/route", "/v1/estimate"] {
        assert_eq!(ask(path, None).await.unwrap().status(), 200, "no key: it is their own");
    }
    for actor in [Actor::Agt, Actor::Atm, Actor::Adm] {
        let key = server.key(actor).await;
        for path in ["/v1/sandboxes", "/v1/sandboxes?dry_run=true", "/v1/route", "/v1/estimate"] {
            let (status, told) = error(ask(path, Some(&key)).await.unwrap()).await;
            assert_eq!((status, told["code"].as_str()), (400, Some("invalid_input")), "{path}: {told}");
            assert!(told["hint"].as_str().unwrap().contains("SANDBOXER_STUB"), "{told}");
        }
    }
    assert!(server.fake.living().is_empty());
}
