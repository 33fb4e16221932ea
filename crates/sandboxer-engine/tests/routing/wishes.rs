//! What profile, request and configuration want, through the whole engine.

use sandboxer_core::ErrorKind;
use sandboxer_core::profile::{RouteSpec, Strategy};
use sandboxer_core::request::CreateRequest;
use serde_json::json;

use crate::provider::Provider;
use crate::site::{Blueprint, Site, me, request};

fn wanted(route: serde_json::Value) -> Option<RouteSpec> {
    Some(serde_json::from_value(route).unwrap())
}

async fn market() -> Site {
    let cheap = Provider::metered("ext.cheap").located("eu-1", "eu");
    let dear = Provider::metered("ext.dear").located("us-1", "us");
    let own = Provider::new("ext.own");
    let mut plan = Blueprint::of(&[&dear, &cheap, &own]);
    plan.profile = "resources: {cpu: 1}\nttl: {default: 1h}\n".into();
    plan.prices = vec![("ext.cheap", "0.00001"), ("ext.dear", "0.00004")];
    plan.build().await
}

async fn first(site: &Site, route: serde_json::Value) -> Result<String, String> {
    let request = CreateRequest { route: wanted(route), ..request() };
    let plan = site.engine.plan(&request).await.unwrap();
    match plan.offer() {
        Ok(offer) => Ok(offer.extension.clone()),
        Err(error) => {
            assert_eq!((error.kind(), error.kind().http_status()), (ErrorKind::NoBackend, 503));
            Err(error.to_string())
        }
    }
}

#[tokio::test]
async fn every_wish_reaches_the_decision() {
    let site = market().await;
    for (route, expected) in [
        (json!({}), "ext.own"),
        (json!({ "strategy": "lowest-cost", "ignore": ["ext.own"] }), "ext.cheap"),
        (json!({ "strategy": "lowest-cost", "order": ["ext.dear"] }), "ext.dear"),
        (json!({ "only": ["ext.dear", "ext.cheap"] }), "ext.cheap"),
        (json!({ "strategy": "explicit", "order": ["ext.dear"] }), "ext.dear"),
        (json!({ "constraints": { "residency": ["us"] } }), "ext.dear"),
        (json!({ "constraints": { "region": "eu-1" } }), "ext.cheap"),
        (json!({ "constraints": { "residency": ["us", "eu"], "max_cost_per_hour": "0.04" } }), "ext.cheap"),
    ] {
        assert_eq!(first(&site, route.clone()).await.as_deref(), Ok(expected), "{route}");
    }
    for (route, expected) in [
        (json!({ "constraints": { "capabilities": ["gpu"] } }), "it lacks the required capability `gpu`"),
        (json!({ "constraints": { "require_isolation": "microvm" } }), "isolation `container` is weaker"),
        (
            json!({ "only": ["ext.dear"], "constraints": { "max_cost_total": "0.1" } }),
            "the TTL costs 0.144000001 USD",
        ),
    ] {
        let told = first(&site, route.clone()).await.unwrap_err();
        assert!(told.contains(expected), "{told}");
    }
}

#[tokio::test]
async fn the_plan_has_the_quote_of_its_first_offer() {
    let site = market().await;
    let with = |route| CreateRequest { route: wanted(route), ..request() };
    let plan = site.engine.plan_for(&me(), &with(json!({ "only": ["ext.cheap"] }))).await.unwrap();
    assert_eq!(plan.quote.amount.to_string(), "0.036000001 USD");
    assert_eq!(plan.quote.per_hour.to_string(), "0.036 USD");
    assert!(!plan.quote.items.is_empty());
    let offer = plan.route.chosen().unwrap();
    assert_eq!(offer.quote.unwrap().amount, plan.quote.amount);
    let mut limited = with(json!({ "only": ["ext.cheap"] }));
    limited.max_cost = Some("0.01".parse().unwrap());
    let plan = site.engine.plan_for(&me(), &limited).await.unwrap();
    assert!(plan.route.offers.iter().all(|offer| !offer.accepted), "`max_cost` is `max_cost_total`");
    let json = serde_json::to_value(&plan).unwrap();
    assert!(json["route"]["offers"][0]["reason"].as_str().unwrap().len() > 3);
}

#[tokio::test]
async fn the_operator_has_a_word() {
    let (one, two) = (Provider::new("ext.one"), Provider::new("ext.two"));
    let mut plan = Blueprint::of(&[&one, &two]);
    plan.route = RouteSpec {
        strategy: Some(Strategy::LowestCost),
        ignore: vec!["ext.one".into()],
        ..RouteSpec::default()
    };
    let site = plan.build().await;
    assert_eq!(site.create().await.unwrap().extension, "ext.two");
    let error = site.create_with(|request| request.extension = Some("ext.one".into())).await.unwrap_err();
    assert!(error.to_string().contains("`route.ignore` names it"), "{error:?}");
}

#[tokio::test]
async fn nobody_is_given_a_shared_sandbox_that_was_ruled_out() {
    let site = market().await;
    let share = |route: serde_json::Value| {
        let site = &site;
        async move {
            let request = |request: &mut CreateRequest| {
                request.scope = Some(sandboxer_core::profile::Scope::Shared);
                request.route = wanted(route);
            };
            site.create_with(request).await.unwrap()
        }
    };
    let transfer = sandboxer_store::Transfer {
        id: "grant".into(),
        kind: sandboxer_core::ledger::Kind::Credit,
        from: "world".into(),
        to: "org:default".into(),
        amount: "5".parse().unwrap(),
        memo: String::new(),
        time: site.engine.now(),
    };
    site.store.transfer(&transfer).await.unwrap();
    let own = share(json!({})).await;
    assert_eq!((own.extension.as_str(), own.reused), ("ext.own", false));
    for (route, extension) in [
        (json!({ "only": ["ext.cheap"] }), "ext.cheap"),
        (json!({ "ignore": ["ext.own", "ext.cheap"] }), "ext.dear"),
        (json!({ "constraints": { "residency": ["us"] } }), "ext.dear"),
        (
            json!({ "only": ["ext.cheap", "ext.dear"], "constraints": { "max_cost_per_hour": "0.05" } }),
            "ext.cheap",
        ),
    ] {
        let other = share(route.clone()).await;
        assert_eq!((other.extension.as_str(), other.reused), (extension, false), "{route}");
        let drift = other.drift.unwrap();
        assert_eq!((drift.previous, drift.changed), (own.sandbox_id, vec!["route".to_owned()]));
        assert_eq!(share(route).await.sandbox_id, other.sandbox_id, "those who demand the same share it");
    }
    let ruled = json!({ "ignore": ["ext.cheap", "ext.own"] });
    assert!(share(ruled).await.reused, "in whatever order it is said");
    assert_eq!(share(json!({})).await.sandbox_id, own.sandbox_id);
    assert!(share(json!({ "strategy": "lowest-cost" })).await.reused, "a preference rules nobody out");
    // One that takes the place of another takes it for all who share it.
    let again = site.engine.recreate(&me(), own.sandbox_id, Default::default()).await.unwrap().sandbox;
    assert_eq!(share(json!({})).await.sandbox_id, again.sandbox_id);
}

#[tokio::test]
async fn a_slip_of_the_hand_is_told() {
    let site = market().await;
    for key in ["only", "ignore", "order", "fallback"] {
        let request = CreateRequest { route: wanted(json!({ key: ["ext.chaep"] })), ..request() };
        let error = site.engine.plan(&request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
        assert!(error.to_string().contains(&format!("route.{key}")), "{error:?}");
        assert_eq!(error.hint(), Some("did you mean `ext.cheap`?"));
    }
    // A profile may name what is not here; the offers say so.
    let mut plan = Blueprint::of(&[&Provider::new("ext.one")]);
    plan.profile = "route: {ignore: [ext.noe], order: [ext.elsewhere]}\n".into();
    let site = plan.build().await;
    assert_eq!(
        site.refusal("ext.noe").await.unwrap(),
        "`route.ignore` names it, and this extension is not installed; did you mean `ext.one`?"
    );
    assert_eq!(site.refusal("ext.elsewhere").await.unwrap(), "this extension is not installed");
    assert_eq!(site.create().await.unwrap().extension, "ext.one");
}

#[tokio::test]
async fn a_wish_without_effect_is_told() {
    let (one, two) = (Provider::new("ext.one"), Provider::new("ext.two"));
    let mut plan = Blueprint::of(&[&one, &two]);
    plan.profile = "extension: ext.one\n".into();
    let site = plan.build().await;
    for (route, key) in [
        (json!({ "order": ["ext.two"] }), "order"),
        (json!({ "strategy": "weighted", "weights": { "ext.two": 1 } }), "weights"),
    ] {
        let request = CreateRequest { route: wanted(route), ..request() };
        let plan = site.engine.plan(&request).await.unwrap();
        let told = plan.route.offers.iter().find(|offer| offer.extension == "ext.two").unwrap();
        assert!(!told.accepted);
        assert_eq!(
            told.reason,
            format!("`route.{key}` names it, and the profile says itself which extensions are asked")
        );
        assert_eq!(plan.offer().unwrap().extension, "ext.one");
    }
    for empty in [json!({ "only": [] }), json!({ "constraints": { "residency": [] } })] {
        let error = serde_json::from_value::<RouteSpec>(empty).unwrap_err().to_string();
        assert!(error.contains("is an empty list; leave it out"), "{error}");
    }
}

#[tokio::test]
async fn what_was_demanded_holds_for_a_successor_too() {
    let cheap = Provider::new("ext.own").located("eu-1", "eu");
    let metered = Provider::metered("ext.dear");
    let mut plan = Blueprint::of(&[&cheap, &metered]);
    plan.profile = "resources: {cpu: 1}\nttl: {default: 1m}\n".into();
    plan.prices = vec![("ext.dear", "0.00001")];
    let site = plan.build().await;
    site.store
        .transfer(&sandboxer_store::Transfer {
            id: "gift".into(),
            kind: sandboxer_core::ledger::Kind::Credit,
            from: sandboxer_core::ledger::WORLD.into(),
            to: "org:default".into(),
            amount: "10".parse().unwrap(),
            memo: String::new(),
            time: site.engine.now(),
        })
        .await
        .unwrap();
    let route = wanted(json!({ "only": ["ext.dear"], "constraints": { "max_cost_per_hour": "0.04" } }));
    let made = site.create_with(|request| request.route = route).await.unwrap();
    assert_eq!(made.extension, "ext.dear");
    let dearer = site.reprice(&[("ext.dear", "0.0001")]);
    let error = dearer.recreate(&me(), made.sandbox_id, Default::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoBackend, "{error:?}");
    assert!(error.to_string().contains("above `max_cost_per_hour` of 0.04 USD"), "{error:?}");
    assert_eq!(metered.living(), 1, "the old one is still there");
}
