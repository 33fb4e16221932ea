//! Idempotency keys and API keys.

use sandboxer_core::{Actor, ErrorKind, KeyId, State};
use sandboxer_store::{Inserted, KeyRecord, Replay};
use tokio::task::JoinSet;

use super::Place;
use super::fixture::*;

pub(crate) async fn a_create_is_replayed(place: &dyn Place) {
    let store = place.open().await;
    let first = keyed(insert(record(), State::Requested), "k", "body");
    let Inserted::New(stored) = store.insert(first).await.unwrap() else { panic!("not new") };
    let stored = go(&*store, &stored, &[State::Provisioning, State::Ready]).await;
    let again = store.insert(keyed(insert(record(), State::Requested), "k", "body")).await.unwrap();
    assert_eq!(again, Inserted::Replayed(stored.clone()), "as it is now");
    assert_eq!(store.living().await.unwrap(), [stored]);
    let mut other_scope = keyed(insert(record(), State::Requested), "k", "body");
    other_scope.idempotency.as_mut().unwrap().scope = "key_1 create".into();
    assert!(matches!(store.insert(other_scope).await.unwrap(), Inserted::New(_)));
}

pub(crate) async fn another_body_is_a_mismatch(place: &dyn Place) {
    let store = place.open().await;
    store.insert(keyed(insert(record(), State::Requested), "k", "body")).await.unwrap();
    let other = store.insert(keyed(insert(record(), State::Requested), "k", "other")).await.unwrap();
    assert_eq!(other, Inserted::Mismatch);
    assert_eq!(store.living().await.unwrap().len(), 1);
    assert_eq!(store.idempotency_begin(&request("k", "body"), at(0)).await.unwrap(), Replay::Mismatch);
}

pub(crate) async fn a_reused_sandbox_is_linked_to_the_key(place: &dyn Place) {
    let store = place.open().await;
    let shared = || {
        let mut record = record();
        record.reuse_key = Some("shared/a".into());
        record
    };
    let stored = put(&*store, shared(), State::Ready).await;
    let found = store.insert(keyed(insert(shared(), State::Requested), "k", "body")).await.unwrap();
    assert_eq!(found, Inserted::Reusable(stored.clone()));
    let ended = go(&*store, &stored, &[State::Destroying]).await;
    let again = store.insert(keyed(insert(shared(), State::Requested), "k", "body")).await.unwrap();
    assert_eq!(again, Inserted::Replayed(ended), "the key wins over reuse");
    let other = store.insert(keyed(insert(shared(), State::Requested), "k", "other")).await.unwrap();
    assert_eq!(other, Inserted::Mismatch);
}

pub(crate) async fn creates_with_one_key_at_once_make_one_sandbox(place: &dyn Place) {
    let stores = [place.open().await, place.open().await];
    let mut tasks = JoinSet::new();
    for turn in 0..30 {
        let store = stores[turn % 2].clone();
        tasks.spawn(async move {
            store.insert(keyed(insert(record(), State::Requested), "k", "b")).await.unwrap()
        });
    }
    let all = tasks.join_all().await;
    assert_eq!(all.iter().filter(|one| matches!(one, Inserted::New(_))).count(), 1);
    assert_eq!(all.iter().filter(|one| matches!(one, Inserted::Replayed(_))).count(), 29);
    assert_eq!(stores[0].living().await.unwrap().len(), 1);
}

pub(crate) async fn other_requests_keep_their_answer(place: &dyn Place) {
    let store = place.open().await;
    let asked = request("k", "body");
    assert_eq!(store.idempotency_begin(&asked, at(0)).await.unwrap(), Replay::New);
    assert_eq!(store.idempotency_begin(&asked, at(1)).await.unwrap(), Replay::InFlight);
    assert_eq!(store.idempotency_begin(&request("k", "other"), at(1)).await.unwrap(), Replay::Mismatch);
    store.idempotency_finish(&asked, Some((202, "{\"a\":1}".into()))).await.unwrap();
    let done = Replay::Done { status: 202, body: "{\"a\":1}".into() };
    assert_eq!(store.idempotency_begin(&asked, at(2)).await.unwrap(), done);
    store.idempotency_finish(&asked, Some((500, "late".into()))).await.unwrap();
    store.idempotency_finish(&asked, None).await.unwrap();
    assert_eq!(store.idempotency_begin(&asked, at(100_000)).await.unwrap(), done, "the first answer stays");
    assert_eq!(store.idempotency_begin(&request("k", "other"), at(2)).await.unwrap(), Replay::Mismatch);
}

pub(crate) async fn a_request_without_effect_may_be_sent_again(place: &dyn Place) {
    let store = place.open().await;
    let asked = request("k", "body");
    assert_eq!(store.idempotency_begin(&asked, at(0)).await.unwrap(), Replay::New);
    store.idempotency_finish(&asked, None).await.unwrap();
    assert_eq!(store.idempotency_begin(&request("k", "other"), at(1)).await.unwrap(), Replay::New);
}

pub(crate) async fn an_abandoned_request_may_be_sent_again(place: &dyn Place) {
    let store = place.open().await;
    let asked = request("k", "body");
    assert_eq!(store.idempotency_begin(&asked, at(0)).await.unwrap(), Replay::New);
    assert_eq!(store.idempotency_begin(&asked, at(599)).await.unwrap(), Replay::InFlight);
    assert_eq!(store.idempotency_begin(&asked, at(600)).await.unwrap(), Replay::New);
    assert_eq!(store.idempotency_begin(&asked, at(601)).await.unwrap(), Replay::InFlight);
}

pub(crate) async fn one_of_many_requests_at_once_goes_on(place: &dyn Place) {
    let stores = [place.open().await, place.open().await];
    let mut tasks = JoinSet::new();
    for turn in 0..30 {
        let store = stores[turn % 2].clone();
        tasks.spawn(async move { store.idempotency_begin(&request("k", "body"), at(0)).await.unwrap() });
    }
    let all = tasks.join_all().await;
    assert_eq!(all.iter().filter(|one| **one == Replay::New).count(), 1);
    assert_eq!(all.iter().filter(|one| **one == Replay::InFlight).count(), 29);
}

fn key(name: &str, hash: &str) -> KeyRecord {
    KeyRecord {
        key_id: KeyId::generate(),
        name: name.into(),
        actor: Actor::Agt,
        organisation: "acme".into(),
        workspace: "research".into(),
        hash: hash.into(),
        created_at: at(0),
        expires_at: Some(at(1_000)),
        revoked_at: None,
    }
}

pub(crate) async fn keys_are_listed_found_and_revoked(place: &dyn Place) {
    let store = place.open().await;
    let (one, two) = (key("one", "aa"), KeyRecord { expires_at: None, ..key("two", "bb") });
    store.key_insert(&one).await.unwrap();
    store.key_insert(&two).await.unwrap();
    assert_eq!(store.key_list().await.unwrap(), [two.clone(), one.clone()]);
    assert_eq!(store.key_find("aa").await.unwrap(), Some(one.clone()));
    assert_eq!(store.key_find("cc").await.unwrap(), None);
    let revoked = KeyRecord { revoked_at: Some(at(5)), ..one.clone() };
    assert_eq!(store.key_revoke(one.key_id, at(5)).await.unwrap(), revoked);
    assert_eq!(store.key_revoke(one.key_id, at(9)).await.unwrap(), revoked, "the first revocation counts");
    assert_eq!(store.key_find("aa").await.unwrap(), Some(revoked.clone()));
    assert_eq!(store.key_list().await.unwrap(), [two, revoked]);
    let error = store.key_revoke(KeyId::generate(), at(5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

pub(crate) async fn a_key_twice_is_a_conflict(place: &dyn Place) {
    let store = place.open().await;
    store.key_insert(&key("one", "aa")).await.unwrap();
    let error = store.key_insert(&key("two", "aa")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    store.key_insert(&key("three", "cc")).await.unwrap();
}
