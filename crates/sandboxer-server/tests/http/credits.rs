//! Credits over HTTP: paid in once, held, charged, told, and only to whom it concerns.

use sandboxer_core::Actor;
use sandboxer_core::ledger::Seat;
use serde_json::{Value, json};

use crate::support::{Server, error};

async fn get(server: &Server, path: &str) -> Value {
    let answer = server.get(path).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{path}");
    answer.json().await.unwrap()
}

async fn add(server: &Server, body: Value) -> Value {
    let answer = server.post("/v1/credits").json(&body).send().await.unwrap();
    assert_eq!(answer.status(), 201);
    answer.json().await.unwrap()
}

#[tokio::test]
async fn a_payment_is_made_once() {
    let server = Server::start().await;
    let body = json!({ "amount": "25.50", "account": "org:acme", "memo": "first" });
    let send =
        |key: &str, body: &Value| server.post("/v1/credits").header("Idempotency-Key", key).json(body).send();
    for _ in 0..3 {
        let answer = send("k1", &body).await.unwrap();
        assert_eq!(answer.status(), 201);
        let credited: Value = answer.json().await.unwrap();
        assert_eq!(credited["account"]["balance"], "25.50 USD");
        assert_eq!(credited["transaction"], "credit:k1");
    }
    let other = json!({ "amount": "25.51", "account": "org:acme", "memo": "first" });
    let (status, told) = error(send("k1", &other).await.unwrap()).await;
    assert_eq!((status, told["code"].as_str()), (409, Some("idempotency_mismatch")));
    // A key goes with the whole body, also where that has an id.
    for body in [
        json!({ "amount": "25.50", "account": "org:acme", "memo": "first", "id": "other" }),
        json!({ "amount": "7", "account": "org:acme", "id": "k1" }),
    ] {
        let (status, told) = error(send("k1", &body).await.unwrap()).await;
        assert_eq!((status, told["code"].as_str()), (409, Some("idempotency_mismatch")), "{body}");
    }
    let named = json!({ "amount": "1", "account": "org:named", "id": "n1" });
    for _ in 0..2 {
        let answer: Value = send("k2", &named).await.unwrap().json().await.unwrap();
        assert_eq!(answer["account"]["balance"], "1.00 USD");
    }
    let named = json!({ "amount": "1", "account": "org:named", "id": "n2" });
    assert_eq!(error(send("k2", &named).await.unwrap()).await.0, 409);
    // Without a key each is a payment of its own.
    add(&server, body.clone()).await;
    assert_eq!(add(&server, body).await["account"]["balance"], "76.50 USD");
    assert_eq!(get(&server, "/v1/credits/audit").await["ok"], true);
}

#[tokio::test]
async fn amounts_that_cannot_be_are_refused_with_the_reason() {
    let server = Server::start().await;
    for (amount, why) in [
        (json!("0"), "above zero"),
        (json!("-1"), "above zero"),
        (json!("NaN"), "decimal number"),
        (json!("1e9"), "decimal number"),
        (json!("5 EUR"), "in EUR"),
        (json!("0.0000000001"), "nine decimals"),
        (json!("9999999999999999999999"), "too large"),
        (json!("1000000001"), "the most is"),
        (json!(5), "a string such as \"5.00\""),
    ] {
        let body = json!({ "amount": amount, "account": "org:acme" });
        let (status, told) = error(server.post("/v1/credits").json(&body).send().await.unwrap()).await;
        assert_eq!((status, told["code"].as_str()), (400, Some("invalid_input")), "{body}");
        assert!(told["message"].as_str().unwrap().contains(why), "{body}: {told}");
    }
    for body in [
        json!({ "amount": "1", "account": "world" }),
        json!({ "amount": "1", "account": "held:org:acme" }),
        json!({ "amount": "1", "account": "org:Acme" }),
        json!({ "amount": "1", "memo": "a\u{7}b" }),
        json!({ "amount": "1", "memo": "paid \u{202e}ecnereffid" }),
        json!({ "amount": "-1", "account": "org:acme", "kind": "adjustment" }),
        json!({ "amount": "0", "account": "org:acme", "kind": "adjustment", "memo": "x" }),
        json!({ "amount": "1", "kind": "hold" }),
        json!({ "amount": "1", "id": "a b" }),
        json!({ "amount": "1", "acount": "org:acme" }),
    ] {
        assert_eq!(
            error(server.post("/v1/credits").json(&body).send().await.unwrap()).await.0,
            400,
            "{body}"
        );
    }
    assert_eq!(get(&server, "/v1/credits").await["accounts"], json!([]));
}

#[tokio::test]
async fn a_mistake_is_put_right_and_never_below_the_limit() {
    let server = Server::start().await;
    let send = |body: Value| server.post("/v1/credits").json(&body).send();
    let adjust = |amount: &str, id: &str| {
        send(
            json!({ "amount": amount, "account": "org:acme", "kind": "adjustment", "memo": "twice", "id": id }),
        )
    };
    let (status, told) = error(adjust("-1", "a1").await.unwrap()).await;
    assert_eq!((status, told["code"].as_str()), (404, Some("not_found")), "{told}");
    add(&server, json!({ "amount": "10", "account": "org:acme", "id": "p1" })).await;
    for _ in 0..2 {
        let answer = adjust("-4", "a1").await.unwrap();
        assert_eq!(answer.status(), 201);
        let done: Value = answer.json().await.unwrap();
        assert_eq!((&done["amount"], &done["account"]["balance"]), (&json!("-4.00 USD"), &json!("6.00 USD")));
    }
    assert_eq!(error(adjust("-5", "a1").await.unwrap()).await.0, 409);
    let (status, told) = error(adjust("-6.01", "a2").await.unwrap()).await;
    assert_eq!((status, told["code"].as_str()), (402, Some("insufficient_credits")), "{told}");
    let limit = json!({ "account": "org:acme", "overdraft": "1" });
    server.http.put(server.url("/v1/credits/limit")).json(&limit).send().await.unwrap();
    assert_eq!(adjust("-6.01", "a2").await.unwrap().status(), 201);
    assert_eq!(adjust("0.01", "a3").await.unwrap().status(), 201);
    let entries = get(&server, "/v1/credits/entries?account=org:acme").await;
    let kinds: Vec<&str> =
        entries["items"].as_array().unwrap().iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["credit", "adjustment", "adjustment", "adjustment"]);
    assert_eq!(get(&server, "/v1/credits/audit").await["ok"], true);
    // Nobody can spend what is on the account of a key that is not there.
    let nobody = format!("key:{}", sandboxer_core::KeyId::generate());
    let (status, told) = error(send(json!({ "amount": "1", "account": nobody })).await.unwrap()).await;
    assert_eq!((status, told["code"].as_str()), (404, Some("not_found")), "{told}");
    for path in ["entries?account=org:acmee", "statement?month=2026-11&account=org:acmee"] {
        let (status, told) = error(server.get(&format!("/v1/credits/{path}")).send().await.unwrap()).await;
        assert_eq!((status, told["code"].as_str()), (404, Some("not_found")), "{path}: {told}");
    }
    let (_, told) = error(server.get("/v1/credits?account=fees").send().await.unwrap()).await;
    assert!(!told.to_string().contains("credits add"), "nobody pays into it: {told}");
}

#[tokio::test]
async fn an_agent_sees_who_pays_and_what_was_moved_for_it() {
    let server = Server::start_priced().await;
    let seat = |workspace: &str| Seat { organisation: "acme".into(), workspace: workspace.into() };
    let (_, one) = server.key_in(Actor::Agt, seat("research")).await;
    let (_, other) = server.key_in(Actor::Agt, seat("research")).await;
    let create = |key: &str| {
        let request = server.post("/v1/sandboxes").bearer_auth(key);
        request.json(&json!({ "profile": "profile.test" })).send()
    };
    let (_, told) = error(create(&one).await.unwrap()).await;
    assert!(told["hint"].as_str().unwrap().contains("ask an operator"), "{told}");
    let (_, boss) = server.key_in(Actor::Adm, Seat::default()).await;
    let body = json!({ "amount": "5", "account": "org:acme" });
    let paid = server.post("/v1/credits").bearer_auth(&boss).json(&body).send().await.unwrap();
    assert_eq!(paid.status(), 201);
    let get = async |key: &str, path: &str| {
        let answer = server.get(path).bearer_auth(key).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer.json::<Value>().await.unwrap()
    };
    let credits = get(&one, "/v1/credits").await;
    assert_eq!((&credits["pays"], &credits["accounts"]), (&json!("org:acme"), &json!([])));
    assert_eq!(
        error(server.get("/v1/credits?account=org:acme").bearer_auth(&one).send().await.unwrap()).await.0,
        403
    );
    assert_eq!(get(&boss, "/v1/credits?account=org:acme").await["accounts"][0]["balance"], "5.00 USD");
    let made: Value = create(&one).await.unwrap().json().await.unwrap();
    let id = made["sandbox_id"].as_str().unwrap();
    let ended = server.http.delete(server.url(&format!("/v1/sandboxes/{id}"))).bearer_auth(&one).send();
    assert_eq!(ended.await.unwrap().status(), 200);
    let shown = async |key: &str, path: &str| {
        let page = get(key, path).await;
        let lines = page["items"].as_array().unwrap().iter();
        lines
            .map(|one| format!("{} {}", one["kind"].as_str().unwrap(), one["account"].as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(shown(&one, "/v1/credits/entries").await, ["hold org:acme", "settlement org:acme"]);
    assert!(shown(&other, "/v1/credits/entries").await.is_empty());
    let of_sandbox = format!("/v1/credits/entries?sandbox={id}");
    let all = ["hold org:acme", "hold held:org:acme", "settlement held:org:acme", "settlement org:acme"];
    assert_eq!(shown(&one, &of_sandbox).await, all);
    for (key, is_told) in [(&one, false), (&boss, true)] {
        let page = get(key, &of_sandbox).await;
        let lines = page["items"].as_array().unwrap();
        assert!(lines.iter().all(|line| line["balance"].is_string() == is_told), "{page:#}");
    }
    assert_eq!(
        shown(&one, "/v1/credits/entries?account=org:acme").await,
        ["hold org:acme", "settlement org:acme"]
    );
    for path in [of_sandbox, format!("/v1/meters?sandbox={id}")] {
        let (status, told) = error(server.get(&path).bearer_auth(&other).send().await.unwrap()).await;
        assert_eq!((status, told["code"].as_str()), (404, Some("sandbox_not_found")), "{path}");
    }
}

/// What is missing is said to everybody, and what is there to whoever may look at the account.
#[tokio::test]
async fn a_refusal_tells_a_balance_to_whom_it_concerns() {
    let server = Server::start_priced().await;
    let seat = Seat { organisation: "acme".into(), workspace: "research".into() };
    let (_, agent) = server.key_in(Actor::Agt, seat.clone()).await;
    let (_, boss) = server.key_in(Actor::Adm, seat).await;
    let refused = async |key: &str| {
        let request = server.post("/v1/sandboxes").bearer_auth(key);
        let (status, told) =
            error(request.json(&json!({ "profile": "profile.test" })).send().await.unwrap()).await;
        assert_eq!((status, told["code"].as_str()), (402, Some("insufficient_credits")), "{told}");
        told
    };
    for (account, agent_is_told) in [("org:acme", false), ("workspace:acme/research", true)] {
        let body = json!({ "amount": "0.0777", "account": account });
        server.post("/v1/credits").bearer_auth(&boss).json(&body).send().await.unwrap();
        for (key, is_told) in [(&agent, agent_is_told), (&boss, true)] {
            let told = refused(key).await;
            assert_eq!(told.to_string().contains("0.0777"), is_told, "{told}");
            assert_eq!(told["details"]["account"], account);
            assert_eq!(told["details"]["needed"], "0.160000002 USD");
            assert!(told["message"].as_str().unwrap().contains("0.160000002 USD"), "{told}");
            assert!(told["hint"].as_str().unwrap().contains(account), "{told}");
        }
    }
    // The same with budgets.
    let body = json!({ "amount": "100", "account": "workspace:acme/research" });
    server.post("/v1/credits").bearer_auth(&boss).json(&body).send().await.unwrap();
    for (subject, agent_is_told) in [("org:acme", false), ("workspace:acme/research", true)] {
        let budget = json!({ "subject": subject, "period": "day", "limit": "0.0777" });
        let url = server.url("/v1/credits/budgets");
        assert_eq!(server.http.put(url).bearer_auth(&boss).json(&budget).send().await.unwrap().status(), 200);
        for (key, is_told) in [(&agent, agent_is_told), (&boss, true)] {
            let told = refused(key).await;
            assert_eq!(told.to_string().contains("0.0777"), is_told, "{told}");
            assert_eq!(
                (&told["details"]["budget"], &told["details"]["period"]),
                (&json!(subject), &json!("day"))
            );
        }
        let url = server.url(&format!("/v1/credits/budgets?subject={subject}&period=day"));
        assert_eq!(server.http.delete(url).bearer_auth(&boss).send().await.unwrap().status(), 200);
    }
    assert!(server.fake.living().is_empty(), "nothing was provisioned");
}

#[tokio::test]
async fn held_charged_metered_and_on_the_statement() {
    let server = Server::start_priced().await;
    let body = json!({ "profile": "profile.test", "ttl": "10m" });
    let (status, told) = error(server.post("/v1/sandboxes").json(&body).send().await.unwrap()).await;
    assert_eq!((status, told["code"].as_str()), (402, Some("insufficient_credits")), "{told}");
    assert!(server.fake.living().is_empty(), "nothing was provisioned");

    add(&server, json!({ "amount": "1" })).await;
    let made: Value = server.post("/v1/sandboxes").json(&body).send().await.unwrap().json().await.unwrap();
    assert_eq!(made["quote"]["amount"], "0.160000002 USD", "{made:#}");
    let account = |credits: &Value| credits["accounts"][0].clone();
    assert_eq!(account(&get(&server, "/v1/credits").await)["held"], "0.160000002 USD");
    let id = made["sandbox_id"].as_str().unwrap();
    let ended = server.http.delete(server.url(&format!("/v1/sandboxes/{id}"))).send().await.unwrap();
    let ended: Value = ended.json().await.unwrap();
    let charged = ended["cost"]["charged"].as_str().unwrap().to_owned();
    assert!(ended["cost"]["items"].as_array().unwrap().len() == 2, "{ended:#}");
    let after = account(&get(&server, "/v1/credits").await);
    assert_eq!(after["held"], "0.00 USD");

    let entries = get(&server, &format!("/v1/credits/entries?sandbox={id}")).await;
    let kinds: Vec<&str> =
        entries["items"].as_array().unwrap().iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["hold", "hold", "settlement", "settlement", "settlement"]);
    let meters = get(&server, &format!("/v1/meters?sandbox={id}&extension=ext.fake")).await;
    assert_eq!(meters["items"].as_array().unwrap().len(), 2);
    assert!(meters["items"].as_array().unwrap().iter().all(|meter| meter["ended_at"].is_string()));
    assert_eq!(get(&server, "/v1/meters?extension=ext.other").await["items"], json!([]));

    let month = &made["created_at"].as_str().unwrap()[..7];
    let statement = get(&server, &format!("/v1/credits/statement?month={month}")).await;
    assert_eq!(statement["opening"], "0.00 USD");
    assert_eq!(statement["closing"], after["balance"]);
    assert_eq!(statement["charged"], charged);
    assert_eq!(statement["held"], "0.00 USD");
    assert_eq!(statement["by_extension"][0]["extension"], "ext.fake");
    assert_eq!(statement["by_meter"][0]["profile"], "profile.test");
    let csv = server.get(&format!("/v1/credits/statement?month={month}&format=csv")).send().await.unwrap();
    assert!(csv.headers()["content-type"].to_str().unwrap().starts_with("text/csv"));
    let csv = csv.text().await.unwrap();
    assert!(
        csv.starts_with("row,time,kind,") && csv.contains("\r\nopening,") && csv.contains("\r\nclosing,")
    );
    for query in ["", "?month=2026-13", "?month=2026-11&format=xml", "?month=2026-11&monht=x"] {
        let answer = server.get(&format!("/v1/credits/statement{query}")).send().await.unwrap();
        assert_eq!(error(answer).await.0, 400, "{query}");
    }
    // The next month opens with what this one closed with.
    let next = get(&server, "/v1/credits/statement?month=9998-01").await;
    assert_eq!((&next["opening"], &next["closing"]), (&after["balance"], &after["balance"]));
    assert_eq!(get(&server, "/v1/credits/audit").await["ok"], true);

    let metrics = server.get("/metrics").send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("sandboxer_credits_usd{what=\"held\"} 0\n"), "{metrics}");
    let absorbed = "sandboxer_credits_absorbed_usd_total{extension=\"ext.fake\"} 0\n";
    assert!(metrics.contains(absorbed), "{metrics}");
    assert!(
        metrics.contains("sandboxer_route_decisions_total{outcome=\"insufficient_credits\"} 1"),
        "{metrics}"
    );
    assert!(metrics.contains("sandboxer_route_decisions_total{outcome=\"first_choice\"} 1"), "{metrics}");
}

#[tokio::test]
async fn agents_see_their_own_money_and_nobody_elses() {
    let server = Server::start_priced().await;
    let seat = Seat { organisation: "acme".into(), workspace: "research".into() };
    let (one_id, one) = server.key_in(Actor::Agt, seat.clone()).await;
    let (_, other) = server.key_in(Actor::Agt, seat).await;
    let (_, stranger) = server.key_in(Actor::Agt, Seat::default()).await;
    let (_, boss) = server.key_in(Actor::Adm, Seat::default()).await;
    let get = async |key: &str, path: &str| {
        let answer = server.get(path).bearer_auth(key).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer.json::<Value>().await.unwrap()
    };
    let refused = server.post("/v1/credits").bearer_auth(&one).json(&json!({ "amount": "1" })).send();
    assert_eq!(error(refused.await.unwrap()).await.0, 403);
    let body = json!({ "amount": "5", "account": "workspace:acme/research" });
    server.post("/v1/credits").bearer_auth(&boss).json(&body).send().await.unwrap();
    for key in [&one, &other] {
        let credits = get(key, "/v1/credits").await;
        assert_eq!(credits["pays"], "workspace:acme/research");
        assert_eq!(credits["accounts"][0]["balance"], "5.00 USD");
    }
    assert_eq!(get(&stranger, "/v1/credits").await["accounts"], json!([]));

    let body = json!({ "profile": "profile.test" });
    let made = server.post("/v1/sandboxes").bearer_auth(&one).json(&body).send().await.unwrap();
    let made: Value = made.json().await.unwrap();
    let id = made["sandbox_id"].as_str().unwrap();
    let count = async |key: &str, path: &str| get(key, path).await["items"].as_array().unwrap().len();
    assert_eq!(count(&one, "/v1/credits/entries").await, 1, "its hold, and not the payment");
    assert_eq!(count(&other, "/v1/credits/entries").await, 0);
    assert_eq!((count(&one, "/v1/meters").await, count(&other, "/v1/meters").await), (2, 0));
    let of_sandbox = format!("/v1/credits/entries?sandbox={id}");
    assert_eq!(count(&one, &of_sandbox).await, 2);
    assert_eq!(error(server.get(&of_sandbox).bearer_auth(&other).send().await.unwrap()).await.0, 404);
    assert!(count(&boss, "/v1/credits/entries?account=all").await >= 4);
    // A statement of the workspace tells what others did.
    let statement = server.get("/v1/credits/statement?month=2026-11").bearer_auth(&one).send().await.unwrap();
    assert_eq!(error(statement).await.0, 403);
    let own = format!("/v1/credits/statement?month=2026-11&account=key:{one_id}");
    let missing = server.get(&own).bearer_auth(&one).send().await.unwrap();
    let (status, told) = error(missing).await;
    assert_eq!(status, 404, "{told}");
    assert!(told["hint"].as_str().unwrap().contains("ask an operator"), "{told}");
    let body = json!({ "amount": "2", "account": format!("key:{one_id}") });
    server.post("/v1/credits").bearer_auth(&boss).json(&body).send().await.unwrap();
    assert_eq!(get(&one, &own).await["entries"].as_array().unwrap().len(), 1);
    let keys = get(&boss, "/v1/keys").await;
    assert!(keys["items"].as_array().unwrap().iter().any(|key| key["workspace"] == "research"), "{keys}");
}

#[tokio::test]
async fn budgets_and_limits_stop_what_would_pass_them() {
    let server = Server::start_priced().await;
    let put = |path: &str, body: Value| server.http.put(server.url(path)).json(&body).send();
    add(&server, json!({ "amount": "100" })).await;
    let budget = json!({ "subject": "actor:adm", "period": "day", "limit": "0.20" });
    let set: Value = put("/v1/credits/budgets", budget).await.unwrap().json().await.unwrap();
    assert_eq!(
        set,
        json!({ "subject": "actor:default/adm", "period": "day", "limit": "0.20 USD", "used": "0.00 USD" })
    );
    let create = || server.post("/v1/sandboxes").json(&json!({ "profile": "profile.test" })).send();
    assert_eq!(create().await.unwrap().status(), 201);
    let (status, told) = error(create().await.unwrap()).await;
    assert_eq!(status, 402, "{told}");
    assert_eq!(get(&server, "/v1/credits").await["budgets"][0]["used"], "0.160000002 USD");
    let remove = || {
        let url = server.url("/v1/credits/budgets?subject=actor:adm&period=day");
        server.http.delete(url).send()
    };
    assert_eq!(remove().await.unwrap().status(), 200);
    assert_eq!(error(remove().await.unwrap()).await.0, 404);
    assert_eq!(create().await.unwrap().status(), 201);
    for body in [
        json!({ "subject": "everybody", "period": "day", "limit": "1" }),
        json!({ "subject": "actor:adm", "period": "week", "limit": "1" }),
        json!({ "subject": "actor:adm", "period": "day", "limit": "-1" }),
    ] {
        assert_eq!(error(put("/v1/credits/budgets", body.clone()).await.unwrap()).await.0, 400, "{body}");
    }
    let limit = json!({ "account": "org:acme", "overdraft": "3" });
    let account: Value = put("/v1/credits/limit", limit).await.unwrap().json().await.unwrap();
    assert_eq!((&account["balance"], &account["overdraft"]), (&json!("0.00 USD"), &json!("3.00 USD")));
    let limit = json!({ "account": "org:acme", "overdraft": "-3" });
    assert_eq!(error(put("/v1/credits/limit", limit).await.unwrap()).await.0, 400);
}

#[tokio::test]
async fn a_providers_export_beside_our_meters() {
    let server = Server::start_priced().await;
    add(&server, json!({ "amount": "1" })).await;
    let (one, two) = (server.create().await, server.create().await);
    for id in [&one, &two] {
        server.http.delete(server.url(&format!("/v1/sandboxes/{id}"))).send().await.unwrap();
    }
    let send = |kind: &str, body: String, query: &str| {
        let path = format!("/v1/credits/reconcile?extension=ext.fake{query}");
        server.post(&path).header("content-type", kind).body(body).send()
    };
    let meters = get(&server, &format!("/v1/meters?sandbox={one}")).await;
    let cost: f64 = meters["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|meter| meter["cost"].as_str().unwrap().trim_end_matches(" USD").parse::<f64>().unwrap())
        .sum();
    let csv = format!("tag,seconds,cost\n{one},1,{cost:.6}\nsbx_strange,60,0.5\nbroken,now,1\n");
    let report: Value = send("text/csv", csv, "").await.unwrap().json().await.unwrap();
    assert_eq!((&report["matched"], &report["ok"]), (&json!(1), &json!(false)), "{report:#}");
    assert_eq!(report["only_theirs"][0]["tag"], "sbx_strange");
    assert_eq!(report["only_ours"][0]["tag"], two.as_str());
    assert_eq!(report["malformed"][0]["line"], 4);
    let list = json!([{ "tag": one, "seconds": 1, "cost": "0.01" }]).to_string();
    let report: Value = send("application/json", list, "").await.unwrap().json().await.unwrap();
    assert_eq!(report["differing"][0]["theirs"], "0.01 USD", "{report:#}");
    let euros = format!("tag,seconds,cost,currency\n{one},1,0.01,EUR\n");
    let report: Value = send("text/csv", euros, "").await.unwrap().json().await.unwrap();
    assert!(report["malformed"][0]["problem"].as_str().unwrap().contains("EUR"), "{report:#}");
    let csv = || "tag,seconds,cost\n".to_owned();
    assert_eq!(error(send("text/csv", csv(), "&tolerance=-1").await.unwrap()).await.0, 400);
    let unknown = server.post("/v1/credits/reconcile?extension=ext.typo").header("content-type", "text/csv");
    assert_eq!(error(unknown.body(csv()).send().await.unwrap()).await.0, 404);
    let priced = server.post("/v1/credits/reconcile?extension=ext.e2b").header("content-type", "text/csv");
    assert_eq!(priced.body(csv()).send().await.unwrap().status(), 200);
    assert_eq!(send("text/plain", "x".into(), "").await.unwrap().status(), 415);
    assert_eq!(error(send("text/csv", "a,b\n".into(), "").await.unwrap()).await.0, 400);
    assert_eq!(error(send("text/csv", "x".repeat((8 << 20) + 1), "").await.unwrap()).await.0, 413);
}

#[tokio::test]
async fn keys_for_what_is_no_provider_are_refused() {
    let server = Server::start_priced().await;
    let path = "/v1/credits/provider-keys";
    let put = |body: Value| server.http.put(server.url(path)).json(&body).send();
    let own = json!({ "workspace": "default", "extension": "ext.fake", "key": "hush-hush" });
    let (status, told) = error(put(own).await.unwrap()).await;
    assert_eq!(status, 400, "{told}");
    assert!(!told.to_string().contains("hush"), "{told}");
    let unknown = json!({ "workspace": "default", "extension": "ext.nothing", "key": "x" });
    assert_eq!(error(put(unknown).await.unwrap()).await.0, 404);
    let url = server.url(&format!("{path}?workspace=default&extension=ext.fake"));
    assert_eq!(error(server.http.delete(&url).send().await.unwrap()).await.0, 404);
    assert_eq!(get(&server, path).await["items"], json!([]));
}

#[tokio::test]
async fn a_budget_of_agents_is_for_those_of_one_organisation() {
    let server = Server::start_priced().await;
    let (_, boss) = server.key_in(Actor::Adm, Seat::default()).await;
    let budget = json!({ "subject": "actor:acme/agt", "period": "day", "limit": "0.20" });
    let url = server.url("/v1/credits/budgets");
    let set = server.http.put(url).bearer_auth(&boss).json(&budget).send().await.unwrap();
    assert_eq!(set.status(), 200);
    for (organisation, second) in [("acme", 402), ("other", 201)] {
        let body = json!({ "amount": "10", "account": format!("org:{organisation}") });
        server.post("/v1/credits").bearer_auth(&boss).json(&body).send().await.unwrap();
        let seat = Seat { organisation: organisation.into(), ..Seat::default() };
        let (_, agent) = server.key_in(Actor::Agt, seat).await;
        for expected in [201, second] {
            let request = server.post("/v1/sandboxes").bearer_auth(&agent);
            let made = request.json(&json!({ "profile": "profile.test" })).send().await.unwrap();
            assert_eq!(made.status(), expected, "{organisation}");
        }
    }
}
