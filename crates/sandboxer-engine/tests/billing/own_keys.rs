//! A workspace that pays its provider itself.

use sandboxer_core::request::CreateRequest;
use sandboxer_core::{Dur, ErrorKind, Money};
use sandboxer_engine::CreateOptions;
use sandboxer_engine::vault::Vault;
use sandboxer_store::OwnKey;
use sandboxer_testkit::Workshop;

use crate::fixture::{account, audit, create, me, money, pay_in, workshop};

const SECRET: &str = "the-workspace-s-own-key";

async fn with_own_key(fee_basis_points: u32) -> Workshop {
    let workshop = workshop().await;
    workshop.engine.keep_secrets_in(workshop.folder.path());
    Vault::new(workshop.folder.path().join("secrets")).put("provider-1", SECRET).unwrap();
    let key = OwnKey {
        organisation: "default".into(),
        workspace: "default".into(),
        extension: "ext.native".into(),
        secret: "provider-1".into(),
        fee_basis_points,
        created_at: workshop.engine.now(),
    };
    workshop.store.own_key_put(&key).await.unwrap();
    workshop
}

#[tokio::test]
async fn without_a_fee_no_credits_are_needed_and_both_figures_are_told() {
    let workshop = with_own_key(0).await;
    let sandbox = create(&workshop.engine, 100).await.unwrap();
    assert_eq!((sandbox.quote.amount, sandbox.quote.fee), (Money::ZERO, Money::ZERO));
    assert_eq!(sandbox.quote.upstream, money("1.000000001"));
    assert_eq!(workshop.extension.credentials(), [Some(SECRET.to_owned())]);
    workshop.clock.advance(Dur::from_secs(10));
    let cost = workshop.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap().cost.unwrap();
    assert_eq!((cost.charged, cost.upstream), (Money::ZERO, money("0.1")));
    audit(&workshop).await;
}

#[tokio::test]
async fn the_fee_is_what_is_held_and_charged() {
    let workshop = with_own_key(1_000).await;
    assert_eq!(create(&workshop.engine, 100).await.unwrap_err().kind(), ErrorKind::InsufficientCredits);
    pay_in(&workshop, "10").await;
    let sandbox = create(&workshop.engine, 100).await.unwrap();
    assert_eq!(sandbox.quote.amount, money("0.1"));
    workshop.clock.advance(Dur::from_secs(10));
    workshop.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap();
    assert_eq!(account(&workshop).await.balance, money("9.99"));
    assert_eq!(workshop.store.account("fees").await.unwrap().unwrap().balance, money("0.01"));
    assert!(
        workshop
            .store
            .account("provider:ext.native")
            .await
            .unwrap()
            .is_none_or(|it| it.balance == Money::ZERO)
    );
    audit(&workshop).await;
}

#[tokio::test]
async fn a_key_that_is_gone_is_never_replaced_by_the_platforms() {
    let workshop = with_own_key(0).await;
    Vault::new(workshop.folder.path().join("secrets")).remove("provider-1").unwrap();
    let error = create(&workshop.engine, 100).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert_eq!(workshop.extension.provisioned(), 0);
    audit(&workshop).await;
}

#[tokio::test]
async fn the_key_is_nowhere_in_the_store() {
    let workshop = with_own_key(0).await;
    let sandbox = create(&workshop.engine, 100).await.unwrap();
    workshop.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap();
    for entry in std::fs::read_dir(workshop.folder.path()).unwrap().flatten() {
        if entry.file_type().unwrap().is_file() {
            let bytes = std::fs::read(entry.path()).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains(SECRET), "{:?}", entry.path());
        }
    }
}

#[tokio::test]
async fn a_bound_is_for_both_parts_also_when_it_is_made_longer() {
    let workshop = with_own_key(0).await;
    let request = CreateRequest {
        ttl: Some(Dur::from_secs(100)),
        max_cost: Some(money("1.5")),
        ..CreateRequest::default()
    };
    let made = workshop.engine.create(&me(), request, CreateOptions::default()).await.unwrap().sandbox;
    workshop.engine.extend_ttl(&me(), made.sandbox_id, Dur::from_secs(140)).await.unwrap();
    let error = workshop.engine.extend_ttl(&me(), made.sandbox_id, Dur::from_secs(200)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
}
