//! What we send to an extension at most; the rest goes to the next.

use std::collections::BTreeMap;
use std::time::Duration;

use sandboxer_core::route::ExtensionLimits;
use sandboxer_core::{Dur, ErrorKind, Retry, Sandbox};

use crate::provider::Provider;
use crate::site::{Blueprint, Site, create, me, request};

async fn limited(limits: ExtensionLimits) -> (Provider, Provider, Site) {
    let (one, two) = (Provider::new("ext.one"), Provider::new("ext.two"));
    let mut plan = Blueprint::chain(&[&one, &two]);
    plan.limits = BTreeMap::from([("ext.one".to_owned(), limits)]);
    let site = plan.build().await;
    (one, two, site)
}

/// So many creates at once, by two processes.
async fn at_once(site: &Site, count: usize) -> Vec<Sandbox> {
    let second = site.reborn().await;
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..count {
        let engine = if index % 2 == 0 { site.engine.clone() } else { second.clone() };
        tasks.spawn(async move { create(&engine, request()).await.unwrap() });
    }
    tasks.join_all().await
}

#[tokio::test]
async fn sandboxes_above_the_limit_burst_to_the_next() {
    let (one, two, site) =
        limited(ExtensionLimits { max_sandboxes: Some(3), ..ExtensionLimits::default() }).await;
    let made = at_once(&site, 12).await;
    assert_eq!((one.living(), two.living()), (3, 9), "exactly, by however many processes");
    assert_eq!(site.refusal("ext.one").await.unwrap(), "at its limit here: 3 of 3 sandboxes");
    let there = made.iter().find(|sandbox| sandbox.extension == "ext.one").unwrap();
    site.destroy(there).await;
    assert_eq!(site.create().await.unwrap().extension, "ext.one", "a place was free again");
    let error = site.create_with(|request| request.extension = Some("ext.one".into())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoBackend);
    assert!(error.to_string().contains("at its limit here"), "{error:?}");
    assert_eq!((error.retry(), error.retry_after()), (Retry::Temporary, Some(Dur::from_secs(10))));
    // Our own limit is nobody's failure.
    site.destroy(
        &site
            .rows()
            .await
            .into_iter()
            .find(|row| row.extension == "ext.one" && row.state.is_usable())
            .unwrap(),
    )
    .await;
    assert_eq!(site.refusal("ext.one").await, None);
}

#[tokio::test]
async fn creates_under_way_are_limited() {
    let (one, two, site) =
        limited(ExtensionLimits { max_concurrent_creates: Some(2), ..ExtensionLimits::default() }).await;
    one.script(|script| script.takes = Duration::from_millis(300));
    at_once(&site, 8).await;
    assert_eq!((one.living(), two.living()), (2, 6));
    assert_eq!(site.create().await.unwrap().extension, "ext.one", "none is under way any more");
}

#[tokio::test]
async fn creates_per_second_are_limited() {
    let (one, two, site) =
        limited(ExtensionLimits { creates_per_second: Some(2.0), ..ExtensionLimits::default() }).await;
    let made = at_once(&site, 5).await;
    assert_eq!((one.living(), two.living()), (2, 3));
    for sandbox in &made {
        site.destroy(sandbox).await;
    }
    assert_eq!(site.create().await.unwrap().extension, "ext.two", "an end gives no rate back");
    site.clock.advance(Dur::from_millis(1_001));
    assert_eq!(site.create().await.unwrap().extension, "ext.one");
}

#[tokio::test]
async fn sandboxes_from_before_the_limit_count() {
    let (one, two) = (Provider::new("ext.one"), Provider::new("ext.two"));
    let site = Blueprint::chain(&[&one, &two]).build().await;
    for _ in 0..2 {
        site.create().await.unwrap();
    }
    site.store.route_slots_adopt("ext.one").await.unwrap();
    let limits = ExtensionLimits { max_sandboxes: Some(2), ..ExtensionLimits::default() };
    let slots = site.store.route_slots("ext.one", &limits, site.engine.now()).await.unwrap();
    assert_eq!(slots.living, 2);
    assert_eq!(one.living(), 2);
}

#[tokio::test]
async fn when_it_is_worth_asking_again_is_told_and_only_then() {
    let one = Provider::new("ext.one");
    let mut plan = Blueprint::of(&[&one]);
    let limits = ExtensionLimits { creates_per_second: Some(0.25), ..ExtensionLimits::default() };
    plan.limits = BTreeMap::from([("ext.one".to_owned(), limits)]);
    let site = plan.build().await;
    site.create().await.unwrap();
    let error = site.create().await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Dur::from_secs(4)), "{error:?}");
    // What is refused for good is not worth waiting for, whatever else is wrong with it now.
    let error = site
        .create_with(|request| {
            let route = serde_json::json!({ "constraints": { "require_isolation": "microvm" } });
            request.route = Some(serde_json::from_value(route).unwrap());
        })
        .await
        .unwrap_err();
    assert_eq!((error.retry(), error.retry_after()), (Retry::Permanent, None), "{error:?}");
}

#[tokio::test]
async fn what_is_replaced_leaves_its_place_to_its_successor() {
    let (one, two, site) =
        limited(ExtensionLimits { max_sandboxes: Some(1), ..ExtensionLimits::default() }).await;
    let first = site.create().await.unwrap();
    let again = site.engine.recreate(&me(), first.sandbox_id, Default::default()).await.unwrap().sandbox;
    assert_eq!((again.extension.as_str(), one.living(), two.living()), ("ext.one", 1, 0));
    assert_ne!(again.sandbox_id, first.sandbox_id);
    // One that is over has none to leave.
    let error = site.engine.recreate(&me(), first.sandbox_id, Default::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoBackend, "{error:?}");
    assert_eq!(one.living(), 1, "and nothing was touched");
}

#[tokio::test]
async fn what_was_there_before_the_limit_is_seen_before_anything_is_ended() {
    let one = Provider::new("ext.one");
    let site = Blueprint::of(&[&one]).build().await;
    let first = site.create().await.unwrap();
    site.create().await.unwrap();
    let limits = ExtensionLimits { max_sandboxes: Some(1), ..ExtensionLimits::default() };
    let later = site.reborn_with(BTreeMap::from([("ext.one".to_owned(), limits)])).await;
    let plan = later.plan(&request()).await.unwrap();
    assert_eq!(plan.route.offers[0].reason, "at its limit here: 2 of 1 sandbox");
    let error = later.recreate(&me(), first.sandbox_id, Default::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoBackend, "{error:?}");
    assert_eq!(one.living(), 2, "nothing was touched");
}
