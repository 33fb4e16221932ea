//! What becomes of a delivery, by what the endpoint answers.

use std::time::{Duration, Instant};

use sandboxer_core::Dur;

use crate::receiver::{Answer, Receiver};
use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_fails_half_the_time_gets_everything_in_order() {
    let workshop = workshop().await;
    let receiver = Receiver::start(|_, before| match before % 2 {
        0 => Answer::Status("500 Oh No"),
        _ => Answer::Status("200 OK"),
    })
    .await;
    let hook = hook(&workshop.engine, &receiver.url, &["*"]).await.webhook.webhook_id;
    let ids = [sandbox(&workshop.engine).await, sandbox(&workshop.engine).await];
    for id in ids {
        notes(&workshop, id, 5).await;
    }
    deliver_all(&workshop, hook).await;
    let taken = receiver.taken();
    for id in ids {
        let found = sequences(&taken, id);
        assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>());
        assert!(found.len() >= 8, "{found:?}");
    }
    for request in receiver.requests() {
        assert_eq!(request.header("webhook-id"), request.event().id.to_string());
        assert_eq!(request.header("content-type"), "application/cloudevents+json");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_breaks_off_or_does_not_end_is_a_failure() {
    let workshop = workshop().await;
    let receiver = Receiver::start(|_, before| match before {
        0 => Answer::Cut,
        1 => Answer::Endless,
        _ => Answer::Status("200 OK"),
    })
    .await;
    let hook = hook(&workshop.engine, &receiver.url, &["sandbox.ready"]).await.webhook.webhook_id;
    sandbox(&workshop.engine).await;
    deliver(&workshop.engine).await;
    let error = last_error(&workshop, hook).await;
    assert!(error.contains("200 OK and broke off"), "{error}");
    workshop.clock.advance(Dur::from_secs(6));
    deliver(&workshop.engine).await;
    let error = last_error(&workshop, hook).await;
    assert!(error.contains("more than 65536 bytes"), "{error}");
    deliver_all(&workshop, hook).await;
    let ids: Vec<_> = receiver.requests().iter().map(|it| it.header("webhook-id").to_owned()).collect();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| *id == ids[0]), "the id stays: {ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_is_a_failure_and_never_followed() {
    let workshop = workshop().await;
    let inside = Receiver::fine().await;
    let target = inside.url.clone();
    let receiver = Receiver::start(move |_, before| match before {
        0 => Answer::With("302 Found", format!("location: {target}")),
        _ => {
            Answer::With("307 Temporary Redirect", "location: http://169.254.169.254/latest/meta-data".into())
        }
    })
    .await;
    let hook = hook(&workshop.engine, &receiver.url, &["sandbox.ready"]).await.webhook.webhook_id;
    sandbox(&workshop.engine).await;
    for _ in 0..2 {
        deliver(&workshop.engine).await;
        let error = last_error(&workshop, hook).await;
        assert!(error.contains("redirects are not followed"), "{error}");
        workshop.clock.advance(Dur::from_secs(6));
    }
    assert!(last_error(&workshop, hook).await.contains("169.254.169.254"));
    assert_eq!((receiver.requests().len(), inside.requests().len()), (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_hangs_holds_up_nobody_else() {
    let workshop = workshop().await;
    let (stuck, fine) = (Receiver::start(|_, _| Answer::Hang).await, Receiver::fine().await);
    let stuck_hook = hook(&workshop.engine, &stuck.url, &["sandbox.ready"]).await.webhook.webhook_id;
    hook(&workshop.engine, &fine.url, &["*"]).await;
    sandbox(&workshop.engine).await;
    let started = Instant::now();
    let delivering = tokio::spawn({
        let engine = workshop.engine.clone();
        async move { deliver(&engine).await }
    });
    while fine.taken().len() < 3 {
        assert!(started.elapsed() < Duration::from_secs(15), "the other endpoint waits");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    delivering.await.unwrap();
    let took = started.elapsed();
    assert!(took >= Duration::from_secs(19) && took < Duration::from_secs(40), "{took:?}");
    let error = last_error(&workshop, stuck_hook).await;
    assert!(error.contains("timed out"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_asks_for_time_gets_it() {
    let workshop = workshop().await;
    let receiver = Receiver::start(|_, before| match before {
        0 => Answer::With("429 Too Many Requests", "retry-after: 120".into()),
        _ => Answer::Status("200 OK"),
    })
    .await;
    let hook = hook(&workshop.engine, &receiver.url, &["sandbox.ready"]).await.webhook.webhook_id;
    sandbox(&workshop.engine).await;
    deliver(&workshop.engine).await;
    assert!(last_error(&workshop, hook).await.contains("429"));
    workshop.clock.advance(Dur::from_secs(119));
    deliver(&workshop.engine).await;
    assert_eq!(receiver.requests().len(), 1, "not before the time");
    workshop.clock.advance(Dur::from_secs(26));
    deliver(&workshop.engine).await;
    assert_eq!((receiver.requests().len(), stats(&workshop, hook).await.pending), (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_gone_is_disabled_and_its_queue_can_be_sent_again() {
    let workshop = workshop().await;
    let receiver = Receiver::start(|_, _| Answer::Status("410 Gone")).await;
    let other = Receiver::fine().await;
    let hook_id = hook(&workshop.engine, &receiver.url, &["*"]).await.webhook.webhook_id;
    hook(&workshop.engine, &other.url, &["*"]).await;
    let id = sandbox(&workshop.engine).await;
    deliver(&workshop.engine).await;
    let view = workshop.engine.webhook_get(&admin(), hook_id).await.unwrap();
    assert!(!view.enabled && view.disabled.unwrap().reason.contains("410 Gone"));
    let dead = view.dead;
    assert!(dead >= 3 && view.pending == 0);
    assert_eq!(receiver.requests().len(), 1);
    notes(&workshop, id, 2).await;
    deliver(&workshop.engine).await;
    assert_eq!(receiver.requests().len(), 1, "nothing more is queued for it");
    assert_eq!(other.taken().len() as u64, dead + 2, "others are not concerned");

    // It comes back: turned on by hand, and what was missed is sent again.
    receiver.be(|_, _| Answer::Status("200 OK"));
    let since = sandboxer_engine::ReplayRequest {
        sink: Some(hook_id.to_string()),
        since: Some(jiff::Timestamp::UNIX_EPOCH),
        ..Default::default()
    };
    let refused = workshop.engine.replay_events(&admin(), &since).await.unwrap_err();
    assert!(refused.hint().unwrap().contains("enable"), "{refused}");
    assert!(workshop.engine.webhook_enable(&admin(), hook_id, true).await.unwrap().enabled);
    assert_eq!(workshop.engine.replay_events(&admin(), &since).await.unwrap(), dead + 2);
    deliver(&workshop.engine).await;
    assert_eq!(sequences(&receiver.taken(), id), (1..=dead + 2).collect::<Vec<_>>());
    assert_eq!(stats(&workshop, hook_id).await.dead, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_event_says_where_its_data_is() {
    let workshop = workshop().await;
    let receiver = Receiver::fine().await;
    hook(&workshop.engine, &receiver.url, &["sandbox.progress"]).await;
    let id = sandbox(&workshop.engine).await;
    let data = serde_json::json!({"text": "x".repeat(50_000)});
    let fact = sandboxer_core::event::NewEvent::fact("sandbox.progress", jiff::Timestamp::UNIX_EPOCH, data);
    workshop.store.facts(id, vec![fact]).await.unwrap();
    deliver(&workshop.engine).await;
    let request = receiver.requests().pop().unwrap();
    assert!(request.body.len() <= 20 * 1024);
    assert_eq!(request.event().data["truncated"], true);
    assert_eq!(request.event().data["link"], format!("/v1/sandboxes/{id}/events"));
}
