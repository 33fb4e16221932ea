//! Webhooks, dead letters and replays: what is queued for whom, and that nothing gets lost on the way.

use sandboxer_core::event::NewEvent;
use sandboxer_core::page::Limit;
use sandboxer_core::{ErrorKind, EventId, SandboxId, State, WebhookId};
use sandboxer_store::{
    DeadLetter, DeadLetterFilter, Delivery, Disabled, Outlet, SecretRef, SinkStats, Store, WebhookRecord,
};
use serde_json::json;

use super::Place;
use super::fixture::*;

const SINK: &str = SINKS[0];

fn webhook(patterns: &[&str]) -> WebhookRecord {
    WebhookRecord {
        id: WebhookId::generate(),
        url: "https://example.com/hook".into(),
        patterns: patterns.iter().map(|pattern| pattern.parse().unwrap()).collect(),
        description: None,
        created_at: at(0),
        secrets: vec![SecretRef { name: "a".into(), created_at: at(0), expires_at: None }],
        disabled: None,
        version: 1,
    }
}

async fn add(store: &dyn Store, patterns: &[&str]) -> WebhookRecord {
    let webhook = webhook(patterns);
    store.webhook_insert(&webhook, 64).await.unwrap();
    webhook
}

async fn claim(store: &dyn Store, sink: &str, seconds: i64) -> Vec<Delivery> {
    store.outbox_claim(sink, "claimer", at(seconds), at(seconds + 30), 100).await.unwrap()
}

/// Delivers everything and tells the types and sequences in the order in which they went out.
async fn drain(store: &dyn Store, sink: &str, seconds: i64) -> Vec<(String, u64)> {
    let mut out = Vec::new();
    loop {
        let found = claim(store, sink, seconds).await;
        if found.is_empty() {
            return out;
        }
        for delivery in found {
            out.push((
                delivery.event.kind.trim_start_matches("dev.sandboxer.").to_owned(),
                delivery.event.sequence,
            ));
            store.outbox_done(delivery.id).await.unwrap();
        }
    }
}

async fn fact(store: &dyn Store, id: SandboxId, name: &str) {
    store.facts(id, vec![NewEvent::fact(name, at(0), json!({}))]).await.unwrap();
}

async fn dead(store: &dyn Store, sink: &str) -> Vec<DeadLetter> {
    let filter = DeadLetterFilter { sink: Some(sink.to_owned()) };
    store.dead_letters(&filter, None, Limit::DEFAULT).await.unwrap().items
}

pub(crate) async fn events_are_queued_for_the_webhooks_that_want_them(place: &dyn Place) {
    let store = place.open().await;
    let (all, ready, meters) = {
        // Another process adds them: nobody remembers what there was at the start.
        let other = place.open().await;
        (add(&*other, &["*"]).await, add(&*other, &["sandbox.ready"]).await, add(&*other, &["meter.*"]).await)
    };
    let mut disabled = webhook(&["*"]);
    disabled.disabled = Some(Disabled { at: at(0), reason: "no".into() });
    store.webhook_insert(&disabled, 64).await.unwrap();
    let one = put(&*store, record(), State::Ready).await;
    fact(&*store, one.record.id(), "meter.recorded").await;
    fact(&*store, one.record.id(), "sandbox.note").await;
    fact(&*store, one.record.id(), "meter.recorded").await;
    assert_eq!(drain(&*store, &all.id.to_string(), 0).await.len(), 6);
    assert_eq!(drain(&*store, &ready.id.to_string(), 0).await, [("sandbox.ready".to_owned(), 3)]);
    let found = drain(&*store, &meters.id.to_string(), 0).await;
    assert_eq!(found, [("meter.recorded".to_owned(), 4), ("meter.recorded".to_owned(), 6)]);
    assert!(drain(&*store, &disabled.id.to_string(), 0).await.is_empty());
    assert_eq!(drain(&*store, SINK, 0).await.len(), 6, "the other sinks have theirs");
}

pub(crate) async fn only_endpoints_with_something_due_are_due(place: &dyn Place) {
    let store = place.open().await;
    let (one, _) = (add(&*store, &["*"]).await, add(&*store, &["meter.*"]).await);
    assert!(store.webhooks_due(at(0)).await.unwrap().is_empty());
    put(&*store, record(), State::Requested).await;
    let due = store.webhooks_due(at(0)).await.unwrap();
    assert_eq!(due.iter().map(|webhook| webhook.id).collect::<Vec<_>>(), [one.id]);
    assert_eq!(due[0], one);
    claim(&*store, &one.id.to_string(), 0).await;
    assert!(store.webhooks_due(at(1)).await.unwrap().is_empty(), "somebody has it");
}

pub(crate) async fn endpoints_are_changed_by_one_at_a_time(place: &dyn Place) {
    let store = place.open().await;
    let first = add(&*store, &["*"]).await;
    let second = add(&*store, &["sandbox.*"]).await;
    let listed = store.webhook_list().await.unwrap();
    assert_eq!(listed, [second.clone(), first.clone()]);
    assert_eq!(store.webhook_insert(&webhook(&["*"]), 2).await.unwrap_err().kind(), ErrorKind::Conflict);
    let mut change = first.clone();
    change.description = Some("mine".into());
    let written = store.webhook_update(&change).await.unwrap();
    assert_eq!(store.webhook_get(first.id).await.unwrap(), Some(written));
    assert_eq!(store.webhook_update(&change).await.unwrap_err().kind(), ErrorKind::Conflict);
    let unknown = webhook(&["*"]);
    assert_eq!(store.webhook_update(&unknown).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.webhook_remove(unknown.id).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.webhook_get(unknown.id).await.unwrap(), None);
}

pub(crate) async fn a_disabled_endpoint_keeps_its_queue_as_dead_letters(place: &dyn Place) {
    let store = place.open().await;
    let webhook = add(&*store, &["*"]).await;
    let sink = webhook.id.to_string();
    put(&*store, record(), State::Ready).await;
    let under_way = claim(&*store, &sink, 0).await;
    let disabled = Disabled { at: at(5), reason: "410 Gone".into() };
    assert_eq!(store.webhook_disable(webhook.id, &disabled).await.unwrap(), 3);
    assert_eq!(store.webhook_disable(webhook.id, &disabled).await.unwrap(), 0, "once is enough");
    assert_eq!(store.webhook_get(webhook.id).await.unwrap().unwrap().disabled, Some(disabled));
    put(&*store, record(), State::Ready).await;
    let letters = dead(&*store, &sink).await;
    assert_eq!(letters.iter().map(|letter| letter.sequence).collect::<Vec<_>>(), [3, 2, 1]);
    assert!(letters.iter().all(|letter| letter.reason == "410 Gone" && letter.died_at == at(5)));
    // One that was under way arrives after all.
    store.outbox_done(under_way[0].id).await.unwrap();
    assert_eq!(dead(&*store, &sink).await.len(), 2);
    store.webhook_remove(webhook.id).await.unwrap();
    assert!(dead(&*store, &sink).await.is_empty());
}

pub(crate) async fn what_is_given_up_lets_the_next_go(place: &dyn Place) {
    let store = place.open().await;
    let one = put(&*store, record(), State::Ready).await;
    let first = claim(&*store, SINK, 0).await;
    store.outbox_bury(first[0].id, "503 for days", at(9)).await.unwrap();
    store.outbox_bury(first[0].id, "again", at(10)).await.unwrap();
    let next = claim(&*store, SINK, 10).await;
    assert_eq!(next.iter().map(|delivery| delivery.event.sequence).collect::<Vec<_>>(), [2]);
    let letters = dead(&*store, SINK).await;
    let expected = DeadLetter {
        delivery_id: first[0].id,
        sink: SINK.into(),
        event_id: first[0].event.id,
        kind: "dev.sandboxer.sandbox.requested".into(),
        subject: one.record.id(),
        sequence: 1,
        attempts: 1,
        queued_at: at(0),
        died_at: at(9),
        reason: "503 for days".into(),
    };
    assert_eq!(store.dead_letter(first[0].id).await.unwrap(), Some(expected.clone()));
    assert_eq!(letters, [expected]);
    let stats = store.sink_stats().await.unwrap();
    let of = |sink: &str, pending, dead| SinkStats { sink: sink.into(), pending, dead };
    assert_eq!(stats, [of(SINKS[1], 3, 0), of(SINK, 2, 1)]);
}

pub(crate) async fn dead_letters_come_in_pages(place: &dyn Place) {
    let store = place.open().await;
    for _ in 0..5 {
        put(&*store, record(), State::Requested).await;
    }
    for sink in SINKS {
        for delivery in claim(&*store, sink, 0).await {
            store.outbox_bury(delivery.id, "no", at(1)).await.unwrap();
        }
    }
    for (filter, expected) in [
        (DeadLetterFilter::default(), 10),
        (DeadLetterFilter { sink: Some(SINK.into()) }, 5),
        (DeadLetterFilter { sink: Some("nowhere".into()) }, 0),
    ] {
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let page = store.dead_letters(&filter, cursor.as_deref(), Limit::new(2).unwrap()).await.unwrap();
            found.extend(page.items.iter().map(|letter| letter.delivery_id));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found.len(), expected);
        assert!(found.is_sorted_by(|a, b| a > b), "newest first: {found:?}");
    }
    let error = store.dead_letters(&DeadLetterFilter::default(), Some("x1"), Limit::DEFAULT).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
}

pub(crate) async fn a_replay_goes_behind_what_is_pending(place: &dyn Place) {
    let store = place.open().await;
    put(&*store, record(), State::Ready).await;
    let first = claim(&*store, SINK, 0).await;
    store.outbox_bury(first[0].id, "no", at(1)).await.unwrap();
    assert!(store.replay_dead(first[0].id, at(2)).await.unwrap());
    assert!(!store.replay_dead(first[0].id, at(2)).await.unwrap(), "it is no dead letter any more");
    assert!(dead(&*store, SINK).await.is_empty());
    let order: Vec<u64> = drain(&*store, SINK, 2).await.into_iter().map(|(_, sequence)| sequence).collect();
    assert_eq!(order, [2, 3, 1]);
}

pub(crate) async fn an_event_is_sent_again_to_whoever_wants_it(place: &dyn Place) {
    let store = place.open().await;
    put(&*store, record(), State::Ready).await;
    let first = claim(&*store, SINK, 0).await[0].event.clone();
    drain(&*store, SINK, 40).await;
    let outlets =
        [Outlet::from(SINK), Outlet { name: "other".into(), patterns: vec!["meter.*".parse().unwrap()] }];
    assert_eq!(store.replay_event(first.id, &outlets, at(41)).await.unwrap(), 1);
    assert_eq!(store.replay_event(first.id, &outlets, at(41)).await.unwrap(), 0, "it waits already");
    let again = claim(&*store, SINK, 41).await;
    assert_eq!((again.len(), &again[0].event), (1, &first));
    assert_eq!((again[0].attempts, again[0].queued_at), (0, at(41)));
    let unknown = store.replay_event(EventId::generate(), &outlets, at(41)).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
}

pub(crate) async fn everything_since_a_moment_is_sent_again(place: &dyn Place) {
    let store = place.open().await;
    let one = put(&*store, record(), State::Ready).await;
    let two = put(&*store, record(), State::Ready).await;
    drain(&*store, SINK, 0).await;
    let later = NewEvent::fact("sandbox.note", at(100), json!({}));
    store.facts(one.record.id(), vec![later]).await.unwrap();
    let failed = claim(&*store, SINK, 100).await;
    store.outbox_bury(failed[0].id, "no", at(101)).await.unwrap();
    // In the future, nothing; then what was given up; then everything, with what waits already counted once.
    let outlet = Outlet::from(SINK);
    assert_eq!(store.replay_since(&outlet, at(101), at(102)).await.unwrap(), 0);
    assert_eq!(store.replay_since(&outlet, at(100), at(102)).await.unwrap(), 1);
    assert!(dead(&*store, SINK).await.is_empty());
    assert_eq!(store.replay_since(&outlet, at(0), at(102)).await.unwrap(), 6);
    let mut sequences = std::collections::BTreeMap::<SandboxId, Vec<u64>>::new();
    loop {
        let found = claim(&*store, SINK, 102).await;
        if found.is_empty() {
            break;
        }
        for delivery in found {
            sequences.entry(delivery.event.subject).or_default().push(delivery.event.sequence);
            store.outbox_done(delivery.id).await.unwrap();
        }
    }
    assert_eq!(sequences[&one.record.id()], [4, 1, 2, 3], "behind what was waiting");
    assert_eq!(sequences[&two.record.id()], [1, 2, 3]);
}

pub(crate) async fn many_events_are_sent_again_in_order(place: &dyn Place) {
    let store = place.open().await;
    let one = put(&*store, record(), State::Ready).await;
    for _ in 0..12 {
        let facts = (0..100).map(|_| NewEvent::fact("sandbox.note", at(0), json!({}))).collect();
        store.facts(one.record.id(), facts).await.unwrap();
    }
    let outlet = Outlet { name: "late".into(), patterns: vec!["sandbox.note".parse().unwrap()] };
    assert_eq!(store.replay_since(&outlet, at(0), at(1)).await.unwrap(), 1_200);
    let first = claim(&*store, "late", 1).await;
    assert_eq!((first.len(), first[0].event.sequence), (1, 4));
    assert_eq!(store.outbox_stats("late").await.unwrap().pending, 1_200);
}

pub(crate) async fn claims_of_the_dead_are_given_back(place: &dyn Place) {
    let store = place.open().await;
    put(&*store, record(), State::Requested).await;
    store.outbox_claim(SINK, "late", at(0), at(60), 10).await.unwrap();
    assert_eq!(store.outbox_claimers().await.unwrap(), ["late"]);
    assert!(claim(&*store, SINK, 1).await.is_empty());
    assert_eq!(store.outbox_release("somebody", at(1)).await.unwrap(), 0);
    assert_eq!(store.outbox_release("late", at(1)).await.unwrap(), 1);
    assert!(store.outbox_claimers().await.unwrap().is_empty());
    let again = claim(&*store, SINK, 1).await;
    assert_eq!((again.len(), again[0].attempts), (1, 1));
}

pub(crate) async fn a_dead_letter_keeps_its_sandbox(place: &dyn Place) {
    let store = place.open().await;
    let mut one = record();
    one.sandbox.destroyed_at = Some(at(0));
    let one = put(&*store, one, State::Destroyed).await;
    for sink in SINKS {
        drain(&*store, sink, 0).await;
    }
    let id = one.record.id();
    fact(&*store, id, "sandbox.note").await;
    for sink in SINKS {
        for delivery in claim(&*store, sink, 0).await {
            store.outbox_bury(delivery.id, "no", at(1)).await.unwrap();
        }
    }
    assert_eq!(store.prune(at(10_000)).await.unwrap(), 0);
    for sink in SINKS {
        let letter = dead(&*store, sink).await[0].delivery_id;
        assert!(store.replay_dead(letter, at(2)).await.unwrap());
        drain(&*store, sink, 2).await;
    }
    assert_eq!(store.prune(at(10_000)).await.unwrap(), 1);
}
