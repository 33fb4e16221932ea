//! The billing hub: money and nothing else, in order.

use std::sync::Arc;

use sandboxer_core::event::NewEvent;
use sandboxer_engine::{FIN_HUB_SINK, FinHub, Limits, Sink};
use sandboxer_testkit::Workshop;
use serde_json::json;

use crate::receiver::{Answer, Receiver};
use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_billing_hub_gets_meters_and_credits_in_order() {
    let hub = Receiver::start(|_, before| match before {
        0 => Answer::Cut,
        1 => Answer::With("503 Busy", "retry-after: 30".into()),
        _ => Answer::Status("200 OK"),
    })
    .await;
    let sink: Arc<dyn Sink> = Arc::new(FinHub::new(&hub.url).unwrap());
    let workshop = Workshop::with(Limits::default(), vec![sink]).await.unwrap();
    let id = sandbox(&workshop.engine).await;
    let before = workshop.store.outbox_stats(FIN_HUB_SINK).await.unwrap().pending;
    let facts = ["credits.held", "sandbox.note", "meter.recorded", "sandbox.note", "credits.settled"];
    let now = workshop.engine.now();
    let facts = facts.map(|name| NewEvent::fact(name, now, json!({"amount": "1.00"})));
    workshop.store.facts(id, facts.to_vec()).await.unwrap();
    assert_eq!(workshop.store.outbox_stats(FIN_HUB_SINK).await.unwrap().pending, before + 3);
    for _ in 0..10 {
        deliver(&workshop.engine).await;
        workshop.clock.advance(sandboxer_core::Dur::from_secs(40));
    }
    let taken: Vec<_> = hub.taken().into_iter().map(|event| event.kind).collect();
    let money = |kind: &&String| kind.contains(".meter.") || kind.contains(".credits.");
    assert!(taken.iter().all(|kind| money(&kind)), "{taken:?}");
    let last: Vec<_> = taken.iter().rev().take(3).rev().map(|kind| &kind["dev.sandboxer.".len()..]).collect();
    assert_eq!(last, ["credits.held", "meter.recorded", "credits.settled"]);
    let requests = hub.requests();
    assert_eq!(requests[0].header("idempotency-key"), requests[0].event().id.to_string());
    assert_eq!(requests[0].body, requests[2].body, "the same until it is taken");
    // Whoever watches the number sees that nothing waits any more.
    let stats = workshop.engine.sink_stats().await.unwrap();
    let of_hub: Vec<_> = stats.iter().filter(|stats| stats.sink == FIN_HUB_SINK).collect();
    assert_eq!(of_hub.iter().map(|stats| (stats.pending, stats.dead)).collect::<Vec<_>>(), [(0, 0)]);
}

#[test]
fn an_address_that_is_no_hub_is_refused() {
    for url in ["", "hub", "ftp://hub/", "file:///etc/passwd"] {
        let error = FinHub::new(url).err().unwrap();
        assert!(error.hint().unwrap().contains("SANDBOXER_FIN_HUB_URL"), "{url}");
    }
}
