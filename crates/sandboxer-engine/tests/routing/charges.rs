//! Who is charged for what when a create moves from one provider to another, or runs on two.

use std::time::Duration;

use sandboxer_core::ledger::{Kind, WORLD};
use sandboxer_core::{Dur, Error, ErrorKind, Money, Sandbox};
use sandboxer_store::Transfer;

use crate::provider::Provider;
use crate::site::{Blueprint, Site, me};

const ACCOUNT: &str = "workspace:default/default";

/// The first costs 0.01 USD a second, the second 0.02; with a second create after 50 ms, or without.
async fn priced(hedge: &str) -> (Provider, Provider, Site) {
    let (one, two) = (Provider::new("ext.one"), Provider::new("ext.two"));
    let mut plan = Blueprint::of(&[&one, &two]);
    plan.profile = format!("extension: ext.one\nroute: {{fallback: [ext.two]{hedge}}}\n");
    plan.prices = vec![("ext.one", "0.01"), ("ext.two", "0.02")];
    let site = plan.build().await;
    let transfer = Transfer {
        id: "paid in".into(),
        kind: Kind::Credit,
        from: WORLD.into(),
        to: ACCOUNT.into(),
        amount: money("1000"),
        memo: String::new(),
        time: site.engine.now(),
    };
    site.store.transfer(&transfer).await.unwrap();
    (one, two, site)
}

fn money(text: &str) -> Money {
    text.parse().unwrap()
}

async fn balance(site: &Site, account: &str) -> Money {
    site.store.account(account).await.unwrap().map_or(Money::ZERO, |account| account.balance)
}

/// Ten seconds of it, and who got the money.
async fn end(site: &Site, sandbox: &Sandbox) -> (Money, Money, Money) {
    site.engine.idle().await;
    site.clock.advance(Dur::from_secs(10));
    site.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap();
    let audit = site.store.audit().await.unwrap();
    assert!(audit.wrong.is_empty(), "{:?}", audit.wrong);
    assert_eq!(balance(site, &format!("held:{ACCOUNT}")).await, Money::ZERO);
    (
        balance(site, ACCOUNT).await,
        balance(site, "provider:ext.one").await,
        balance(site, "provider:ext.two").await,
    )
}

#[tokio::test]
async fn after_a_fallback_the_one_that_ran_is_paid() {
    let (one, two, site) = priced("").await;
    one.fails(Error::new(ErrorKind::NoSpace, "full"));
    let sandbox = site.create().await.unwrap();
    assert_eq!((sandbox.extension.as_str(), two.living()), ("ext.two", 1));
    assert_eq!(end(&site, &sandbox).await, (money("999.8"), Money::ZERO, money("0.2")));
}

#[tokio::test]
async fn of_two_creates_the_dearer_is_held_and_the_winner_is_charged() {
    let (one, two, site) = priced(", hedge: {after: 50ms}").await;
    one.script(|script| script.takes = Duration::from_millis(3_000));
    two.script(|script| script.takes = Duration::from_millis(300));
    let engine = site.engine.clone();
    let creating = tokio::spawn(async move {
        engine.create(&me(), crate::site::request(), sandboxer_engine::CreateOptions::default()).await
    });
    let held = || balance(&site, "held:workspace:default/default");
    let first = loop {
        match held().await {
            Money::ZERO => tokio::time::sleep(Duration::from_millis(5)).await,
            held => break held,
        }
    };
    // Both run, and the dearer one can be paid.
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while held().await <= first {
        assert!(std::time::Instant::now() < deadline, "only the first is held");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let sandbox = creating.await.unwrap().unwrap().sandbox;
    assert_eq!(sandbox.extension, "ext.two");
    assert_eq!(held().await, sandbox.quote.amount);
    assert_eq!(end(&site, &sandbox).await, (money("999.8"), Money::ZERO, money("0.2")));
    assert_eq!((one.living(), two.living()), (0, 0));
}

#[tokio::test]
async fn a_first_that_wins_after_all_is_held_at_its_own_price() {
    let (one, two, site) = priced(", hedge: {after: 50ms}").await;
    one.script(|script| script.takes = Duration::from_millis(400));
    two.script(|script| script.takes = Duration::from_millis(3_000));
    let sandbox = site.create().await.unwrap();
    assert_eq!((sandbox.extension.as_str(), sandbox.quote.price.as_str()), ("ext.one", "ext.one 2026-01-01"));
    assert_eq!(balance(&site, &format!("held:{ACCOUNT}")).await, sandbox.quote.amount);
    assert_eq!(end(&site, &sandbox).await, (money("999.9"), money("0.1"), Money::ZERO));
}

#[tokio::test]
async fn what_is_lost_has_a_hint_that_fits_its_place() {
    for (one, said) in
        [(Provider::metered("ext.one"), "the provider"), (Provider::new("ext.one"), "the machine")]
    {
        let mut plan = Blueprint::of(&[&one]);
        plan.profile = "extension: ext.one\n".into();
        plan.prices = vec![("ext.one", "0.01")];
        let site = plan.build().await;
        let transfer = Transfer {
            id: "paid in".into(),
            kind: Kind::Credit,
            from: WORLD.into(),
            to: ACCOUNT.into(),
            amount: money("1000"),
            memo: String::new(),
            time: site.engine.now(),
        };
        site.store.transfer(&transfer).await.unwrap();
        let made = site.create().await.unwrap();
        one.lose();
        let ended = site.reborn().await.get(&me(), made.sandbox_id).await.unwrap();
        let told = format!("{:?}", ended.failure);
        assert!(told.contains(said), "{told}");
    }
}
