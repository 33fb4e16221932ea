//! The next offer is taken only when nothing is left of the one before, and only when that one is to blame.

use sandboxer_core::ledger::Kind;
use sandboxer_core::profile::RouteSpec;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::route::AttemptOutcome;
use sandboxer_core::{Class, Error, ErrorKind, Money, State};
use sandboxer_store::Transfer;

use crate::provider::Provider;
use crate::site::{Blueprint, Site};

fn timeout() -> Error {
    Error::new(ErrorKind::Timeout, "no answer in time")
}

async fn two() -> (Provider, Provider, Site) {
    let (one, two) = (Provider::new("ext.one"), Provider::new("ext.two"));
    let site = Blueprint::chain(&[&one, &two]).build().await;
    (one, two, site)
}

#[tokio::test]
async fn a_create_that_timed_out_and_lives_is_taken_over() {
    let (one, two, site) = two().await;
    one.script(|script| (script.fails, script.times, script.after_effect) = (Some(timeout()), Some(1), true));
    let sandbox = site.create().await.unwrap();
    assert_eq!((sandbox.state, sandbox.extension.as_str()), (State::Ready, "ext.one"));
    assert_eq!(one.calls(), ["provision", "list", "provision"]);
    assert_eq!((one.living(), one.made(), two.living()), (1, 1, 0), "one sandbox, not two");
    let late = &sandbox.route.attempts[0];
    assert_eq!((late.code.as_str(), late.outcome), ("timeout", AttemptOutcome::Adopted));
    assert_eq!(sandbox.route.fallbacks().count(), 0, "it kept its word after all");
    assert!(site.story(&sandbox).await.contains(&"sandbox.adopted".to_owned()));
    site.engine.idle().await;
    assert_eq!(site.refusal("ext.one").await, None);
}

#[tokio::test]
async fn a_create_that_timed_out_and_is_not_there_is_given_up() {
    let (one, two, site) = two().await;
    one.fails(timeout());
    let sandbox = site.create().await.unwrap();
    assert_eq!(sandbox.extension, "ext.two");
    assert_eq!(
        one.calls(),
        ["provision", "list", "teardown"],
        "looked up and made sure before the next is asked"
    );
    let attempt = &sandbox.route.attempts[0];
    assert_eq!((attempt.extension.as_str(), attempt.class), ("ext.one", Some(Class::Timeout)));
    assert_eq!(attempt.code, "timeout");
    assert!(site.story(&sandbox).await.contains(&"sandbox.rerouted".to_owned()));
    assert_eq!((one.living(), two.living()), (0, 1));
}

#[tokio::test]
async fn what_lives_and_cannot_be_taken_over_is_removed() {
    let (one, two, site) = two().await;
    one.script(|script| (script.fails, script.after_effect) = (Some(timeout()), true));
    assert_eq!(site.create().await.unwrap().extension, "ext.two");
    assert_eq!(one.calls(), ["provision", "list", "provision", "teardown"]);
    assert_eq!((one.living(), two.living()), (0, 1));
}

#[tokio::test]
async fn where_nobody_can_look_nobody_else_is_asked() {
    let (one, two, site) = two().await;
    one.script(|script| {
        (script.fails, script.after_effect, script.is_away) = (Some(timeout()), true, true);
    });
    let error = site.create().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(two.calls(), Vec::<&str>::new(), "two could run");
    let row = site.rows().await.remove(0);
    // Whoever gets the error learns what is left, where to look, and what was tried.
    let told = |key: &str| error.context().iter().find(|(known, _)| *known == key).unwrap().1.clone();
    assert_eq!(told("sandbox_id"), row.sandbox_id.to_string());
    assert!(told("cleanup").contains("nobody answers") && told("attempts").contains("ext.one"), "{error:?}");
    assert!(error.hint().unwrap().contains(&format!("`sandboxer get {}`", row.sandbox_id)), "{error:?}");
    assert_eq!(
        (row.state, row.extension.as_str()),
        (State::Failed, "ext.one"),
        "it stays where something may be"
    );
    one.recovers();
    site.engine.refresh().await.unwrap();
    assert_eq!(site.rows().await[0].state, State::Destroyed);
    assert_eq!(one.living(), 0);
}

#[tokio::test]
async fn what_is_wrong_with_the_request_is_wrong_everywhere() {
    let (one, two, site) = two().await;
    for kind in
        [ErrorKind::InvalidInput, ErrorKind::ImageNotFound, ErrorKind::Refused, ErrorKind::SetupFailed]
    {
        one.fails(Error::new(kind, "no"));
        assert_eq!(site.create().await.unwrap_err().kind(), kind);
    }
    assert_eq!(two.calls(), Vec::<&str>::new());
    assert_eq!(site.refusal("ext.one").await, None, "and nobody is to blame");
}

/// The first is free and full, the second has to be paid.
async fn burst(credits: Option<&str>) -> (Provider, Provider, Site) {
    let (one, two) = (Provider::new("ext.one"), Provider::metered("ext.two"));
    one.fails(Error::new(ErrorKind::NoSpace, "full"));
    let mut plan = Blueprint::chain(&[&one, &two]);
    plan.profile.push_str("resources: {cpu: 1}\nttl: {default: 1h}\n");
    plan.prices = vec![("ext.two", "0.00001")];
    let site = plan.build().await;
    if let Some(amount) = credits {
        let transfer = Transfer {
            id: "grant".into(),
            kind: Kind::Credit,
            from: "world".into(),
            to: "org:default".into(),
            amount: amount.parse().unwrap(),
            memo: String::new(),
            time: site.engine.now(),
        };
        site.store.transfer(&transfer).await.unwrap();
    }
    (one, two, site)
}

#[tokio::test]
async fn a_dearer_offer_is_paid_for_before_it_is_asked() {
    let (_, two, site) = burst(Some("1.00")).await;
    let sandbox = site.create().await.unwrap();
    assert_eq!(sandbox.extension, "ext.two");
    assert_eq!(
        sandbox.quote.amount.to_string(),
        "0.036000001 USD",
        "the quote is that of the offer that was taken"
    );
    let held = site.store.account("held:org:default").await.unwrap().unwrap();
    assert_eq!(held.balance, sandbox.quote.amount);
    assert_eq!(two.living(), 1);
}

#[tokio::test]
async fn a_dearer_offer_that_cannot_be_paid_is_not_asked() {
    let (one, two, site) = burst(Some("0.01")).await;
    let error = site.create().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoBackend);
    assert!(error.to_string().contains("ext.one: full (capacity); ext.two: "), "{error:?}");
    assert_eq!((one.living(), two.calls()), (0, Vec::<&str>::new()));
    let row = site.rows().await.remove(0);
    let tried: Vec<&str> = row.route.attempts.iter().map(|attempt| attempt.code.as_str()).collect();
    assert_eq!((row.state, tried), (State::Destroyed, vec!["no_space", "insufficient_credits"]));
    let account = site.store.account("org:default").await.unwrap().unwrap();
    assert_eq!(account.balance, "0.01".parse::<Money>().unwrap());
}

#[tokio::test]
async fn when_everybody_failed_everybody_is_named() {
    let (one, two, site) = two().await;
    one.fails(Error::new(ErrorKind::NoSpace, "full"));
    two.fails(Error::new(ErrorKind::BackendFailed, "500"));
    let error = site.create().await.unwrap_err();
    assert_eq!((error.kind(), error.kind().exit_code()), (ErrorKind::NoBackend, 7));
    for told in ["profile.routed@1.0.0", "ext.one: full (capacity)", "ext.two: 500 (backend)"] {
        assert!(error.to_string().contains(told), "{error:?}");
    }
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "500", "the last one is its cause");
    assert!(error.context().iter().any(|(key, text)| *key == "offers" && text.contains("ext.two")));
    let row = site.rows().await.remove(0);
    let failure = row.failure.unwrap();
    assert_eq!((row.state, failure.code.as_str()), (State::Destroyed, "no_backend"));
    assert!(failure.message.contains("ext.one: full (capacity)"), "{failure:?}");
    // The next one is told the same before anything is tried, and when it is worth coming back.
    one.fails(Error::new(ErrorKind::NoSpace, "full"));
    let error = site
        .create_with(|request| request.extension = Some("ext.one".into()))
        .await
        .expect_err("ext.one is left alone");
    assert_eq!(error.kind(), ErrorKind::NoBackend, "{error:?}");
    // The request's own fault keeps its name.
    two.fails(Error::new(ErrorKind::SetupFailed, "no"));
    assert_eq!(site.create().await.unwrap_err().kind(), ErrorKind::SetupFailed);
}

#[tokio::test]
async fn the_last_candidate_fails_as_the_route_does_unless_the_request_named_it() {
    let (one, two) = (Provider::new("ext.one"), Provider::new("ext.two"));
    let alone = Blueprint::chain(&[&one]).build().await;
    // Nothing else was ever there, and the request did not say so.
    one.fails(Error::new(ErrorKind::Timeout, "no answer").without_effect().with_hint("start it"));
    let error = alone.create().await.unwrap_err();
    assert_eq!((error.kind(), error.kind().http_status()), (ErrorKind::NoBackend, 503), "{error:?}");
    assert!(error.to_string().contains("ext.one: no answer (timeout)"), "{error:?}");
    assert_eq!(error.hint(), Some("start it"), "what helps the backend helps");
    let said = |error: &Error, key: &str| {
        error
            .context()
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, text)| text.clone())
            .unwrap_or_default()
    };
    assert!(said(&error, "attempts").contains("\"code\":\"timeout\""), "{error:?}");
    // The request named it: its own words are the answer.
    one.fails(Error::new(ErrorKind::BackendFailed, "it broke").without_effect());
    let pinned = |request: &mut CreateRequest| request.extension = Some("ext.one".into());
    let error = alone.create_with(pinned).await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::BackendFailed, "it broke"));

    // One is left because a constraint ruled out the other: both are explained.
    let site = Blueprint::chain(&[&one, &two]).build().await;
    one.fails(Error::new(ErrorKind::BackendFailed, "it broke").without_effect());
    let error = site
        .create_with(|request| {
            request.route = Some(RouteSpec { ignore: vec!["ext.two".into()], ..RouteSpec::default() });
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoBackend, "{error:?}");
    for told in ["ext.one: it broke (backend)", "ext.two: "] {
        assert!(error.to_string().contains(told), "{error:?}");
    }
    assert!(said(&error, "offers").contains("ext.two"), "{error:?}");
}

#[tokio::test]
async fn an_offer_that_cannot_be_paid_is_passed_over_for_a_cheaper_one() {
    let (dear, free) = (Provider::metered("ext.dear"), Provider::new("ext.free"));
    let mut plan = Blueprint::chain(&[&dear, &free]);
    plan.profile.push_str("resources: {cpu: 1}\nttl: {default: 1h}\n");
    plan.prices = vec![("ext.dear", "0.00001")];
    let site = plan.build().await;
    let sandbox = site.create().await.unwrap();
    assert_eq!(sandbox.extension, "ext.free");
    assert_eq!(sandbox.route.attempts[0].code, "insufficient_credits");
    assert_eq!((sandbox.quote.amount, dear.calls()), (Money::ZERO, Vec::<&str>::new()));
    let only = |request: &mut sandboxer_core::request::CreateRequest| {
        request.extension = Some("ext.dear".into());
    };
    assert_eq!(site.create_with(only).await.unwrap_err().kind(), ErrorKind::InsufficientCredits);
}
