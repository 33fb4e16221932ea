//! Who fails is left alone, for how long depends, and one at a time finds out when it is over.

use std::time::Duration;

use sandboxer_core::route::BreakerState;
use sandboxer_core::{Class, Dur, Error, ErrorKind, Extension};
use sandboxer_testkit::eventually;

use crate::provider::Provider;
use crate::site::{Blueprint, Site, create, request};

async fn two() -> (Provider, Provider, Site) {
    let (one, two) = (Provider::new("ext.one"), Provider::new("ext.two"));
    let site = Blueprint::chain(&[&one, &two]).build().await;
    (one, two, site)
}

#[tokio::test]
async fn it_opens_half_opens_and_closes() {
    let (one, _, site) = two().await;
    one.fails(Error::new(ErrorKind::BackendFailed, "500"));
    for _ in 0..3 {
        assert_eq!(site.refusal("ext.one").await, None);
        assert_eq!(site.create().await.unwrap().extension, "ext.two");
    }
    let refusal = site.refusal("ext.one").await.unwrap();
    assert!(refusal.contains("after 3 failures (backend): 500"), "{refusal}");
    one.calls();
    assert_eq!(site.create().await.unwrap().extension, "ext.two");
    assert!(one.calls().is_empty(), "it is left alone");
    // Its time is over: one may try, and while it does the others go elsewhere.
    site.clock.advance(Dur::from_secs(31));
    one.recovers();
    one.script(|script| script.takes = Duration::from_secs(1));
    let plan = site.engine.plan(&request()).await.unwrap();
    assert_eq!(plan.route.offers[0].health.as_ref().unwrap().state, BreakerState::HalfOpen);
    let second = site.reborn().await;
    let (a, b) = tokio::join!(create(&site.engine, request()), async {
        eventually("the first one tries", || one.was_asked()).await;
        create(&second, request()).await
    });
    assert_eq!((a.unwrap().extension.as_str(), b.unwrap().extension.as_str()), ("ext.one", "ext.two"));
    assert_eq!(one.calls(), ["provision"]);
    site.engine.idle().await;
    let plan = site.engine.plan(&request()).await.unwrap();
    assert_eq!((plan.extension.as_deref(), &plan.route.offers[0].health), (Some("ext.one"), &None));
}

#[tokio::test]
async fn a_try_that_fails_makes_it_longer() {
    let (one, _, site) = two().await;
    one.fails(Error::new(ErrorKind::NoSpace, "full"));
    site.create().await.unwrap();
    for (rest, is_over) in [(29, false), (2, true)] {
        site.clock.advance(Dur::from_secs(rest));
        assert_eq!(site.refusal("ext.one").await.is_none(), is_over);
    }
    site.create().await.unwrap();
    for (rest, is_over) in [(59, false), (2, true)] {
        site.clock.advance(Dur::from_secs(rest));
        assert_eq!(site.refusal("ext.one").await.is_none(), is_over);
    }
    // A try that says nothing about the backend is given back.
    one.fails(Error::new(ErrorKind::ImageNotFound, "no such image"));
    assert!(site.create().await.is_err());
    site.engine.idle().await;
    assert_eq!(site.refusal("ext.one").await, None);
}

#[tokio::test]
async fn retry_after_is_honoured() {
    let (one, _, site) = two().await;
    one.fails(Error::new(ErrorKind::RateLimited, "429").with_retry_after(Dur::from_secs(7)));
    let sandbox = site.create().await.unwrap();
    assert_eq!(sandbox.route.attempts[0].class, Some(Class::Quota));
    site.clock.advance(Dur::from_secs(6));
    assert!(site.refusal("ext.one").await.unwrap().contains("(quota)"));
    site.clock.advance(Dur::from_secs(2));
    assert_eq!(site.refusal("ext.one").await, None);
}

#[tokio::test]
async fn an_account_without_credit_is_left_alone_for_long_and_by_everybody() {
    let (one, _, site) = two().await;
    one.fails(Error::new(ErrorKind::BackendFailed, "402").with_class(Class::Payment));
    assert_eq!(site.create().await.unwrap().extension, "ext.two");
    let other = site.reborn().await;
    let plan = other.plan(&request()).await.unwrap();
    assert_eq!(plan.extension.as_deref(), Some("ext.two"), "it is remembered by whoever comes next");
    assert!(plan.route.offers[1].reason.contains("(payment): 402"));
    site.clock.advance(Dur::from_secs(899));
    assert!(site.refusal("ext.one").await.is_some());
    site.clock.advance(Dur::from_secs(1));
    assert_eq!(site.refusal("ext.one").await, None);
}

#[tokio::test]
async fn when_all_are_down_everybody_is_named() {
    let (one, two, site) = two().await;
    for provider in [&one, &two] {
        provider.fails(Error::new(ErrorKind::NoSpace, "full"));
    }
    assert_eq!(site.create().await.unwrap_err().kind(), ErrorKind::NoBackend);
    let error = site.create().await.unwrap_err();
    assert_eq!((error.kind(), error.kind().exit_code()), (ErrorKind::NoBackend, 7));
    assert_eq!(error.retry_after(), Some(Dur::from_secs(30)), "when the first of them may be tried again");
    for provider in [&one, &two] {
        assert!(error.to_string().contains(&provider.describe().id), "{error:?}");
    }
}

#[tokio::test]
async fn how_long_creates_take_is_learned_and_kept() {
    let (one, two) = (Provider::new("ext.one"), Provider::new("ext.two"));
    let mut plan = Blueprint::of(&[&one, &two]);
    plan.profile = "route: {strategy: lowest-latency}\n".into();
    let site = plan.build().await;
    one.script(|script| script.takes = Duration::from_millis(80));
    for extension in ["ext.one", "ext.two"] {
        for _ in 0..5 {
            site.create_with(|request| request.extension = Some(extension.into())).await.unwrap();
        }
    }
    site.engine.idle().await;
    for engine in [site.engine.clone(), site.reborn().await] {
        let plan = engine.plan(&request()).await.unwrap();
        assert_eq!(plan.extension.as_deref(), Some("ext.two"), "{:#?}", plan.route);
        let latency = |index: usize| plan.route.offers[index].latency.unwrap();
        assert_eq!((latency(0).samples, latency(1).samples), (5, 5));
        assert!(latency(1).p50.as_millis() >= 80 && latency(0).p95 < latency(1).p50, "{:?}", plan.route);
    }
    // Too slow, and known to be.
    let limited = site.create_with(|request| {
        let route = serde_json::json!({ "only": ["ext.one"], "constraints": { "max_latency": "50ms" } });
        request.route = Some(serde_json::from_value(route).unwrap());
    });
    let error = limited.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoBackend);
    assert!(error.to_string().contains("above `max_latency` of 50ms"), "{error:?}");
}
