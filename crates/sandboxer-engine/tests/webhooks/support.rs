//! An engine with secrets and with webhooks to the loopback, and short ways to say what a test wants.

use std::time::Duration;

use sandboxer_core::event::{Event, NewEvent};
use sandboxer_core::request::CreateRequest;
use sandboxer_core::{Dur, SandboxId, WebhookId};
use sandboxer_engine::{Caller, CreateOptions, Engine, NewWebhook, NewWebhookView};
use sandboxer_store::{OutboxStats, SinkStats};
use sandboxer_testkit::Workshop;
use serde_json::json;

pub(crate) async fn workshop() -> Workshop {
    let workshop = Workshop::new().await.unwrap();
    workshop.engine.keep_secrets_in(workshop.folder.path());
    workshop.engine.allow_private_webhooks("127.0.0.0/8".parse().unwrap());
    workshop
}

pub(crate) fn admin() -> Caller {
    Caller::local_admin()
}

pub(crate) fn wanted(url: &str, events: &[&str]) -> NewWebhook {
    NewWebhook {
        url: url.to_owned(),
        events: events.iter().map(|pattern| pattern.parse().unwrap()).collect(),
        description: None,
    }
}

pub(crate) async fn hook(engine: &Engine, url: &str, events: &[&str]) -> NewWebhookView {
    engine.webhook_create(&admin(), wanted(url, events)).await.unwrap()
}

pub(crate) async fn sandbox(engine: &Engine) -> SandboxId {
    let made = engine.create(&admin(), CreateRequest::default(), CreateOptions::default()).await.unwrap();
    made.sandbox.sandbox_id
}

pub(crate) async fn notes(workshop: &Workshop, id: SandboxId, count: usize) {
    use sandboxer_engine::clock::Clock as _;
    let now = workshop.clock.now();
    let facts = (0..count).map(|turn| NewEvent::fact("sandbox.note", now, json!({"turn": turn}))).collect();
    workshop.store.facts(id, facts).await.unwrap();
}

/// One pass over everything that is due.
pub(crate) async fn deliver(engine: &Engine) {
    engine.deliver_for(Duration::from_secs(60)).await.unwrap();
}

/// Delivers and moves the clock until nothing waits.
pub(crate) async fn deliver_all(workshop: &Workshop, id: WebhookId) {
    for _ in 0..400 {
        deliver(&workshop.engine).await;
        if stats(workshop, id).await.pending == 0 {
            return;
        }
        workshop.clock.advance(Dur::from_secs(600));
    }
    panic!("still pending: {:?}", queue(workshop, id).await);
}

pub(crate) async fn stats(workshop: &Workshop, id: WebhookId) -> SinkStats {
    let stats = workshop.engine.sink_stats().await.unwrap();
    stats.into_iter().find(|stats| stats.sink == id.to_string()).unwrap()
}

pub(crate) async fn queue(workshop: &Workshop, id: WebhookId) -> OutboxStats {
    workshop.store.outbox_stats(&id.to_string()).await.unwrap()
}

pub(crate) async fn last_error(workshop: &Workshop, id: WebhookId) -> String {
    queue(workshop, id).await.last_error.unwrap_or_default()
}

/// The sequences of one sandbox, in the order in which they came.
pub(crate) fn sequences(events: &[Event], id: SandboxId) -> Vec<u64> {
    events.iter().filter(|event| event.subject == id).map(|event| event.sequence).collect()
}
