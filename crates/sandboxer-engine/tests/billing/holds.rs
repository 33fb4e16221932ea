//! What is set aside, and what refuses.

use sandboxer_core::ledger::Period;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::{Dur, ErrorKind, Money, State};
use sandboxer_engine::CreateOptions;
use sandboxer_store::EventFilter;

use crate::fixture::{account, audit, create, me, money, pay_in, workshop};

#[tokio::test]
async fn without_credits_nothing_is_provisioned() {
    let workshop = workshop().await;
    let error = create(&workshop.engine, 100).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InsufficientCredits, "{error:?}");
    assert_eq!(workshop.extension.provisioned(), 0);
    assert!(workshop.store.living().await.unwrap().is_empty(), "not even a row");
    assert!(error.hint().is_some());
    audit(&workshop).await;
}

#[tokio::test]
async fn a_create_holds_its_ttl_and_a_destroy_gives_back_the_rest() {
    let workshop = workshop().await;
    pay_in(&workshop, "10").await;
    let sandbox = create(&workshop.engine, 100).await.unwrap();
    assert_eq!(sandbox.quote.amount, money("1.000000001"), "a nano-dollar a line too much, never too little");
    let account_now = account(&workshop).await;
    assert_eq!((account_now.balance, account_now.held), (money("8.999999999"), money("1.000000001")));

    workshop.clock.advance(Dur::from_secs(30));
    let ended = workshop.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap();
    let cost = ended.cost.unwrap();
    assert_eq!((cost.charged, cost.upstream, cost.fee), (money("0.3"), money("0.3"), Money::ZERO));
    assert_eq!(cost.difference, money("-0.700000001"));
    assert_eq!(account(&workshop).await.balance, money("9.7"));
    assert_eq!(account(&workshop).await.held, Money::ZERO);
    let owed = workshop.store.account("provider:ext.native").await.unwrap().unwrap();
    assert_eq!(owed.balance, money("0.3"));

    // Twice gives the same answer and charges nothing more.
    workshop.clock.advance(Dur::from_secs(30));
    let again = workshop.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap();
    assert_eq!(again.cost.unwrap().charged, money("0.3"));
    assert_eq!(account(&workshop).await.balance, money("9.7"));
    audit(&workshop).await;
}

#[tokio::test]
async fn a_create_that_fails_costs_nothing() {
    let workshop = workshop().await;
    pay_in(&workshop, "10").await;
    for after_effect in [false, true] {
        workshop.extension.script(|script| {
            script.provision_fails = !after_effect;
            script.provision_fails_after_effect = after_effect;
        });
        create(&workshop.engine, 100).await.unwrap_err();
        workshop.extension.script(|script| {
            script.provision_fails = false;
            script.provision_fails_after_effect = false;
        });
        assert_eq!(account(&workshop).await.balance, money("10"));
        assert_eq!(account(&workshop).await.held, Money::ZERO);
    }
    audit(&workshop).await;
}

#[tokio::test]
async fn a_longer_life_is_paid_before_it_is_given() {
    let workshop = workshop().await;
    pay_in(&workshop, "2").await;
    let sandbox = create(&workshop.engine, 100).await.unwrap();
    let longer = workshop.engine.extend_ttl(&me(), sandbox.sandbox_id, Dur::from_secs(150)).await.unwrap();
    assert_eq!(longer.quote.amount, money("1.500000001"));
    assert_eq!(account(&workshop).await.held, money("1.500000001"));
    let error = workshop.engine.extend_ttl(&me(), sandbox.sandbox_id, Dur::from_secs(250)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InsufficientCredits, "{error:?}");
    let unchanged = workshop.engine.get(&me(), sandbox.sandbox_id).await.unwrap();
    assert_eq!(unchanged.expires_at, longer.expires_at);
    assert_eq!(account(&workshop).await.held, money("1.500000001"));
    audit(&workshop).await;
}

#[tokio::test]
async fn many_at_once_never_pass_the_balance_together() {
    let workshop = workshop().await;
    pay_in(&workshop, "3.1").await;
    let other = workshop.second_engine();
    let tasks: Vec<_> = (0..12)
        .map(|turn| {
            let engine = if turn % 2 == 0 { workshop.engine.clone() } else { other.clone() };
            tokio::spawn(async move { create(&engine, 100).await })
        })
        .collect();
    let mut made = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => made += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::InsufficientCredits, "{error:?}"),
        }
    }
    assert_eq!((made, workshop.extension.provisioned()), (3, 3));
    audit(&workshop).await;
}

#[tokio::test]
async fn a_budget_refuses_what_the_balance_would_allow() {
    let workshop = workshop().await;
    pay_in(&workshop, "100").await;
    workshop.store.budget("profile:profile.sandbox-canary", Period::Day, Some(money("1.5"))).await.unwrap();
    let first = create(&workshop.engine, 100).await.unwrap();
    let error = create(&workshop.engine, 100).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InsufficientCredits);
    assert!(error.to_string().contains("profile.sandbox-canary"), "{error}");
    // What was not used counts no more.
    workshop.clock.advance(Dur::from_secs(10));
    workshop.engine.destroy(&me(), first.sandbox_id).await.unwrap();
    create(&workshop.engine, 100).await.unwrap();
    audit(&workshop).await;
}

#[tokio::test]
async fn a_cleanup_that_fails_is_not_charged_on() {
    let workshop = workshop().await;
    pay_in(&workshop, "10").await;
    let sandbox = create(&workshop.engine, 100).await.unwrap();
    workshop.clock.advance(Dur::from_secs(10));
    workshop.extension.script(|script| script.teardown_fails = true);
    workshop.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap_err();
    workshop.clock.advance(Dur::from_secs(1_000));
    workshop.extension.script(|script| script.teardown_fails = false);
    let ended = workshop.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap();
    assert_eq!((ended.state, ended.cost.unwrap().charged), (State::Destroyed, money("0.1")));
    audit(&workshop).await;
}

#[tokio::test]
async fn the_billing_events_tell_the_whole_story_in_order() {
    let workshop = workshop().await;
    pay_in(&workshop, "10").await;
    let sandbox = create(&workshop.engine, 100).await.unwrap();
    workshop.clock.advance(Dur::from_secs(5));
    workshop.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap();
    let filter = EventFilter { subject: Some(sandbox.sandbox_id), owner_key: None };
    let events =
        workshop.store.events(&filter, 0, sandboxer_core::page::Limit::new(100).unwrap()).await.unwrap();
    let kinds: Vec<&str> =
        events.iter().filter_map(|placed| placed.event.kind.strip_prefix("dev.sandboxer.")).collect();
    let money: Vec<&&str> =
        kinds.iter().filter(|kind| kind.starts_with("meter.") || kind.starts_with("credits.")).collect();
    assert_eq!(money, [&"credits.held", &"meter.recorded", &"credits.settled"], "{kinds:?}");
    let sequences: Vec<u64> = events.iter().map(|placed| placed.event.sequence).collect();
    assert_eq!(sequences, (1..=sequences.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_longer_life_keeps_within_what_the_route_allows() {
    let workshop = workshop().await;
    pay_in(&workshop, "10").await;
    let request = CreateRequest {
        ttl: Some(Dur::from_secs(100)),
        max_cost: Some(money("1.5")),
        ..CreateRequest::default()
    };
    let made = workshop.engine.create(&me(), request, CreateOptions::default()).await.unwrap().sandbox;
    let error = workshop.engine.extend_ttl(&me(), made.sandbox_id, Dur::from_secs(200)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert_eq!(account(&workshop).await.held, made.quote.amount, "nothing more is held");
    audit(&workshop).await;
}
