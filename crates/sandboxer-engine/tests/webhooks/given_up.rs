//! Days of failure: what is given up, what goes on meanwhile, and how it is sent again.

use sandboxer_core::page::Limit;
use sandboxer_core::{Dur, ErrorKind};
use sandboxer_engine::ReplayRequest;
use sandboxer_store::DeadLetterFilter;

use crate::receiver::{Answer, Receiver};
use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_is_given_up_after_days_and_holds_up_no_other_sandbox() {
    let workshop = workshop().await;
    let engine = &workshop.engine;
    let bad = sandbox(engine).await;
    let receiver = Receiver::start(move |request, _| {
        if request.event().subject == bad { Answer::Status("503 Busy") } else { Answer::Status("200 OK") }
    })
    .await;
    let hook = hook(engine, &receiver.url, &["*"]).await.webhook.webhook_id;
    notes(&workshop, bad, 2).await;
    let good = sandbox(engine).await;
    deliver(engine).await;
    let taken = sequences(&receiver.taken(), good).len();
    assert!(taken >= 3, "the other sandbox's events are there at once");
    let tries = |of| receiver.requests().iter().filter(|request| request.event().subject == of).count();
    assert_eq!(tries(bad), 1, "and of the failing one the oldest alone was tried");

    // Three and a half days: the first is given up or nearly so, and nothing was lost.
    let mut hours = 0;
    while stats(&workshop, hook).await.pending > 0 {
        workshop.clock.advance(Dur::from_secs(3_600));
        hours += 1;
        deliver(engine).await;
        assert!(hours < 24 * 10, "it is tried for ever");
    }
    assert!(hours > 60, "given up after {hours} hours already");
    let filter = DeadLetterFilter { sink: Some(hook.to_string()) };
    let letters = engine.dead_letters(&admin(), &filter, None, Limit::DEFAULT).await.unwrap().items;
    assert_eq!(letters.iter().map(|letter| letter.sequence).collect::<Vec<_>>().len(), 2);
    assert!(letters.iter().all(|letter| letter.subject == bad && letter.reason.contains("it answered 503")));
    assert!(letters[1].attempts >= 9, "{letters:?}");
    let nobody = DeadLetterFilter { sink: Some("fin-hbu".into()) };
    let unknown = engine.dead_letters(&admin(), &nobody, None, Limit::DEFAULT).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound, "{unknown:?}");

    // Sent again one by one, under the same ids.
    receiver.be(|_, _| Answer::Status("200 OK"));
    for letter in letters.iter().rev() {
        let request = ReplayRequest { delivery_id: Some(letter.delivery_id), ..Default::default() };
        assert_eq!(engine.replay_events(&admin(), &request).await.unwrap(), 1);
        let again = engine.replay_events(&admin(), &request).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::NotFound);
    }
    deliver(engine).await;
    let ids: Vec<_> = receiver.taken().iter().filter(|it| it.subject == bad).map(|it| it.id).collect();
    assert_eq!(ids, letters.iter().rev().map(|letter| letter.event_id).collect::<Vec<_>>());
    assert_eq!(stats(&workshop, hook).await.dead, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_receiver_took_and_lost_is_sent_again_under_the_same_ids() {
    let workshop = workshop().await;
    let engine = &workshop.engine;
    let (receiver, other) = (Receiver::fine().await, Receiver::fine().await);
    let hook_id = hook(engine, &receiver.url, &["*"]).await.webhook.webhook_id;
    hook(engine, &other.url, &["sandbox.ready"]).await;
    let id = sandbox(engine).await;
    deliver(engine).await;
    let first = receiver.taken();
    let since = ReplayRequest {
        sink: Some(hook_id.to_string()),
        since: Some(jiff::Timestamp::UNIX_EPOCH),
        ..Default::default()
    };
    assert_eq!(engine.replay_events(&admin(), &since).await.unwrap(), first.len() as u64);
    assert_eq!(engine.replay_events(&admin(), &since).await.unwrap(), 0, "what waits is not queued twice");
    deliver(engine).await;
    assert_eq!(receiver.taken(), [first.clone(), first.clone()].concat());

    // One event: to everybody who wants it, or to one.
    let ready = first.iter().find(|event| event.kind.ends_with(".ready")).unwrap();
    let one = ReplayRequest { event_id: Some(ready.id), ..Default::default() };
    assert_eq!(engine.replay_events(&admin(), &one).await.unwrap(), 2);
    deliver(engine).await;
    let only = ReplayRequest { sink: Some(hook_id.to_string()), ..one };
    assert_eq!(engine.replay_events(&admin(), &only).await.unwrap(), 1);
    deliver(engine).await;
    assert_eq!(sequences(&other.taken(), id), [ready.sequence, ready.sequence]);
    assert_eq!(receiver.taken().len(), 2 * first.len() + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_that_is_not_clear_is_refused() {
    let workshop = workshop().await;
    let since = Some(jiff::Timestamp::UNIX_EPOCH);
    for request in [
        ReplayRequest::default(),
        ReplayRequest { since, ..Default::default() },
        ReplayRequest { delivery_id: Some(1), since, ..Default::default() },
    ] {
        let error = workshop.engine.replay_events(&admin(), &request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{request:?}");
    }
    // Nobody was told of a billing hub here.
    for sink in ["nowhere", "fin-hub", "whk_01jx0000000000000000000000"] {
        for since in [since, None] {
            let request = ReplayRequest { sink: Some(sink.into()), since, ..Default::default() };
            let error = workshop.engine.replay_events(&admin(), &request).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{sink}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_is_back_is_served_at_once() {
    let workshop = workshop().await;
    let engine = &workshop.engine;
    let receiver = Receiver::start(|_, _| Answer::Status("503 Busy")).await;
    let id = hook(engine, &receiver.url, &["sandbox.ready"]).await.webhook.webhook_id;
    let mut taken = 0;
    for by_replay in [false, true] {
        receiver.be(|_, _| Answer::Status("503 Busy"));
        sandbox(engine).await;
        deliver(engine).await;
        workshop.clock.advance(Dur::from_secs(10));
        deliver(engine).await;
        // The next try is minutes away.
        let view = engine.webhook_get(&admin(), id).await.unwrap();
        assert!(view.last_error.as_deref().is_some_and(|error| error.contains("503")), "{view:?}");
        assert!(view.next_try_at.unwrap() > engine.now() + jiff::SignedDuration::from_secs(200), "{view:?}");
        receiver.be(|_, _| Answer::Status("200 OK"));
        deliver(engine).await;
        assert_eq!(receiver.taken().len(), taken, "nothing is due yet");
        if by_replay {
            let request = ReplayRequest { sink: Some(id.to_string()), ..Default::default() };
            assert_eq!(engine.replay_events(&admin(), &request).await.unwrap(), 1);
        } else {
            let view = engine.webhook_enable(&admin(), id, true).await.unwrap();
            assert!(view.next_try_at.unwrap() <= engine.now(), "{view:?}");
        }
        deliver(engine).await;
        taken += 1;
        assert_eq!(receiver.taken().len(), taken);
    }
    let view = engine.webhook_get(&admin(), id).await.unwrap();
    assert_eq!((view.pending, view.last_error, view.next_try_at), (0, None, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_that_is_answered_gone_disables_and_a_replay_by_sink_brings_the_dead() {
    let workshop = workshop().await;
    let engine = &workshop.engine;
    let receiver = Receiver::start(|_, _| Answer::Status("410 Gone")).await;
    let id = hook(engine, &receiver.url, &["sandbox.ready"]).await.webhook.webhook_id;
    sandbox(engine).await;
    assert_eq!(engine.webhook_test(&admin(), id).await.unwrap().status, Some(410));
    let view = engine.webhook_get(&admin(), id).await.unwrap();
    assert!(!view.enabled && view.dead == 1, "{view:?}");
    assert!(view.last_error.unwrap().contains("410"));
    receiver.be(|_, _| Answer::Status("200 OK"));
    engine.webhook_enable(&admin(), id, true).await.unwrap();
    let request = ReplayRequest { sink: Some(id.to_string()), ..Default::default() };
    assert_eq!(engine.replay_events(&admin(), &request).await.unwrap(), 1);
    deliver(engine).await;
    assert_eq!((receiver.taken().len(), stats(&workshop, id).await.dead), (1, 0));
}
