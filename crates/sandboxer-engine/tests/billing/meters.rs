//! Which time is charged, at which price.

use jiff::SignedDuration;
use sandboxer_core::ledger::Meter;
use sandboxer_core::page::Limit;
use sandboxer_core::{Dur, ErrorKind, Money, SandboxId, State};
use sandboxer_store::MeterFilter;
use sandboxer_testkit::Workshop;

use crate::fixture::{PRICE, account, audit, create, me, money, pay_in, workshop};

async fn meters(workshop: &Workshop, id: SandboxId) -> Vec<Meter> {
    let filter = MeterFilter { sandbox: Some(id), ..MeterFilter::default() };
    let mut items = workshop.store.meters(&filter, None, Limit::new(100).unwrap()).await.unwrap().items;
    items.sort_by_key(|meter| meter.sequence);
    items
}

#[tokio::test]
async fn a_pause_stops_what_the_provider_stops_charging() {
    let workshop = workshop().await;
    pay_in(&workshop, "10").await;
    let id = create(&workshop.engine, 600).await.unwrap().sandbox_id;
    workshop.clock.advance(Dur::from_secs(10));
    workshop.engine.pause(&me(), id).await.unwrap();
    workshop.clock.advance(Dur::from_secs(100));
    workshop.engine.pause(&me(), id).await.unwrap();
    workshop.engine.resume(&me(), id).await.unwrap();
    workshop.clock.advance(Dur::from_secs(20));
    let ended = workshop.engine.destroy(&me(), id).await.unwrap();
    // 30 s at 0.01 and 100 s at 0.001.
    assert_eq!(ended.cost.unwrap().charged, money("0.4"));
    let told: Vec<(String, u32, Money)> =
        meters(&workshop, id).await.into_iter().map(|m| (m.meter, m.sequence, m.cost)).collect();
    let expected = [("vcpu", 1, "0.1"), ("vcpu", 2, "0.1"), ("vcpu", 3, "0.2")];
    assert_eq!(told, expected.map(|(name, sequence, cost)| (name.to_owned(), sequence, money(cost))));
    audit(&workshop).await;
}

/// A real clock goes on while the work is done: where one interval ends the next begins, to the millisecond.
#[tokio::test]
async fn no_time_is_lost_between_two_intervals() {
    let workshop = workshop().await;
    pay_in(&workshop, "10").await;
    workshop.clock.step_with_each_look(Dur::from_millis(7));
    let id = create(&workshop.engine, 600).await.unwrap().sandbox_id;
    workshop.engine.pause(&me(), id).await.unwrap();
    workshop.engine.resume(&me(), id).await.unwrap();
    let ended = workshop.engine.destroy(&me(), id).await.unwrap();
    let meters = meters(&workshop, id).await;
    assert_eq!(meters.len(), 3, "{meters:#?}");
    let mut from = ended.ready_at;
    for meter in &meters {
        assert_eq!(Some(meter.started_at), from, "{meters:#?}");
        from = meter.ended_at;
    }
    audit(&workshop).await;
}

#[tokio::test]
async fn the_ttl_ends_the_charge_however_late_somebody_looks() {
    let workshop = workshop().await;
    pay_in(&workshop, "10").await;
    let id = create(&workshop.engine, 60).await.unwrap().sandbox_id;
    workshop.clock.advance(Dur::from_secs(86_400));
    let ended = workshop.engine.get(&me(), id).await.unwrap();
    assert_eq!((ended.state, ended.cost.unwrap().charged), (State::Destroyed, money("0.6")));
    audit(&workshop).await;
}

#[tokio::test]
async fn what_was_lost_is_charged_until_it_was_last_seen_alive() {
    let workshop = workshop().await;
    pay_in(&workshop, "10").await;
    let id = create(&workshop.engine, 600).await.unwrap().sandbox_id;
    workshop.clock.advance(Dur::from_secs(40));
    workshop.engine.get(&me(), id).await.unwrap();
    workshop.clock.advance(Dur::from_secs(200));
    workshop.extension.lose(&id.to_string());
    let ended = workshop.second_engine().get(&me(), id).await.unwrap();
    assert_eq!((ended.state, ended.cost.unwrap().charged), (State::Destroyed, money("0.4")));
    audit(&workshop).await;
}

/// A sandbox of 600 s that was seen alive after 40 s, is over, and is looked at after 240 s.
async fn ended_at(second: i64) -> Money {
    let workshop = workshop().await;
    pay_in(&workshop, "10").await;
    let made = create(&workshop.engine, 600).await.unwrap();
    workshop.clock.advance(Dur::from_secs(40));
    workshop.engine.get(&me(), made.sandbox_id).await.unwrap();
    workshop.clock.advance(Dur::from_secs(200));
    let at = made.ready_at.unwrap() + SignedDuration::from_secs(second);
    workshop.extension.end_at(&made.sandbox_id.to_string(), at);
    let ended = workshop.second_engine().get(&me(), made.sandbox_id).await.unwrap();
    assert_eq!((ended.state, ended.reason.as_deref()), (State::Destroyed, Some("lost")));
    audit(&workshop).await;
    ended.cost.unwrap().charged
}

#[tokio::test]
async fn what_was_lost_is_charged_until_the_backend_says_it_ended() {
    assert_eq!(ended_at(123).await, money("1.23"));
}

#[tokio::test]
async fn a_backend_that_says_something_absurd_is_believed_within_what_was_seen() {
    // In the future: until now. Before it was seen alive, or before it began: until it was seen alive.
    assert_eq!(ended_at(900_000).await, money("2.4"));
    assert_eq!(ended_at(20).await, money("0.4"));
    assert_eq!(ended_at(-1_000_000).await, money("0.4"));
}

#[tokio::test]
async fn a_ttl_that_ended_while_nobody_looked_is_charged_until_the_backend_says_it_ended() {
    for (told, charged) in [(25, "0.25"), (60, "0.6"), (70, "0.6")] {
        let workshop = workshop().await;
        pay_in(&workshop, "10").await;
        let made = create(&workshop.engine, 60).await.unwrap();
        workshop.clock.advance(Dur::from_secs(86_400));
        let at = made.ready_at.unwrap() + SignedDuration::from_secs(told);
        workshop.extension.end_at(&made.sandbox_id.to_string(), at);
        let ended = workshop.engine.get(&me(), made.sandbox_id).await.unwrap();
        assert_eq!(ended.reason.as_deref(), Some("ttl"));
        assert_eq!(ended.cost.unwrap().charged, money(charged), "{told}");
        audit(&workshop).await;
    }
}

#[tokio::test]
async fn who_asks_for_the_end_of_what_is_over_pays_until_it_was() {
    let workshop = workshop().await;
    pay_in(&workshop, "10").await;
    let made = create(&workshop.engine, 600).await.unwrap();
    workshop.clock.advance(Dur::from_secs(100));
    let at = made.ready_at.unwrap() + SignedDuration::from_secs(7);
    workshop.extension.end_at(&made.sandbox_id.to_string(), at);
    let ended = workshop.engine.destroy(&me(), made.sandbox_id).await.unwrap();
    assert_eq!(ended.cost.unwrap().charged, money("0.07"));
    audit(&workshop).await;
}

#[tokio::test]
async fn the_word_of_the_backend_is_bounded_by_the_interval_that_runs() {
    let workshop = workshop().await;
    pay_in(&workshop, "10").await;
    let made = create(&workshop.engine, 600).await.unwrap();
    workshop.clock.advance(Dur::from_secs(10));
    workshop.engine.pause(&me(), made.sandbox_id).await.unwrap();
    workshop.clock.advance(Dur::from_secs(100));
    // It says that it ended while it still ran, before the pause that it confirmed.
    let at = made.ready_at.unwrap() + SignedDuration::from_secs(5);
    workshop.extension.end_at(&made.sandbox_id.to_string(), at);
    let ended = workshop.engine.get(&me(), made.sandbox_id).await.unwrap();
    assert_eq!(ended.cost.unwrap().charged, money("0.1"));
    let last = meters(&workshop, made.sandbox_id).await.pop().unwrap();
    assert_eq!((last.sequence, last.cost, last.ended_at), (2, Money::ZERO, Some(last.started_at)));
    audit(&workshop).await;
}

#[tokio::test]
async fn two_servers_that_meter_the_same_sandbox_charge_once() {
    let workshop = workshop().await;
    pay_in(&workshop, "10").await;
    let id = create(&workshop.engine, 60).await.unwrap().sandbox_id;
    workshop.clock.advance(Dur::from_secs(61));
    let other = workshop.second_engine();
    let (caller, again) = (me(), me());
    let (one, two) = tokio::join!(workshop.engine.expire(&caller, true), other.expire(&again, true));
    one.unwrap();
    two.unwrap();
    assert_eq!(account(&workshop).await.balance, money("9.4"));
    assert_eq!(meters(&workshop, id).await.len(), 1);
    audit(&workshop).await;
}

#[tokio::test]
async fn a_clock_that_goes_back_charges_nothing_for_it() {
    let workshop = workshop().await;
    pay_in(&workshop, "10").await;
    let id = create(&workshop.engine, 600).await.unwrap().sandbox_id;
    workshop.clock.put_back(Dur::from_secs(3_600));
    let ended = workshop.engine.destroy(&me(), id).await.unwrap();
    assert_eq!(ended.cost.unwrap().charged, Money::ZERO);
    audit(&workshop).await;
}

#[tokio::test]
async fn a_new_price_is_for_new_intervals() {
    let workshop = workshop().await;
    pay_in(&workshop, "10").await;
    let id = create(&workshop.engine, 600).await.unwrap().sandbox_id;
    // The same store and backend with another price: as after a change of the file.
    let dearer = workshop.engine_with_prices(&PRICE.replace("0.02,", "0.10,"));
    workshop.clock.advance(Dur::from_secs(10));
    dearer.pause(&me(), id).await.unwrap();
    dearer.resume(&me(), id).await.unwrap_err();
    pay_in(&workshop, "30").await;
    dearer.resume(&me(), id).await.unwrap();
    workshop.clock.advance(Dur::from_secs(10));
    let ended = dearer.destroy(&me(), id).await.unwrap();
    // 10 s at 0.01, then 10 s at 0.05.
    assert_eq!(ended.cost.unwrap().charged, money("0.6"));
    audit(&workshop).await;
}

#[tokio::test]
async fn a_resume_that_cannot_be_paid_leaves_it_paused() {
    let workshop = workshop().await;
    pay_in(&workshop, "6.1").await;
    let id = create(&workshop.engine, 600).await.unwrap().sandbox_id;
    workshop.engine.pause(&me(), id).await.unwrap();
    let dearer = workshop.engine_with_prices(&PRICE.replace("0.02,", "0.10,"));
    let error = dearer.resume(&me(), id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InsufficientCredits, "{error:?}");
    assert_eq!(workshop.engine.get(&me(), id).await.unwrap().state, State::Paused);
    assert_eq!(workshop.extension.paused(), [id.to_string()]);
    audit(&workshop).await;
}

#[tokio::test]
async fn what_is_above_the_hold_is_charged_to_nobody_and_counted_once() {
    let workshop = workshop().await;
    pay_in(&workshop, "10").await;
    let id = create(&workshop.engine, 100).await.unwrap().sandbox_id;
    // A pause is never refused for its price: it costs ten cents a second from now on.
    let dearer = workshop.engine_with_prices(&PRICE.replace("0.002,", "0.2,").replace("0.02,", "0.2,"));
    dearer.pause(&me(), id).await.unwrap();
    workshop.clock.advance(Dur::from_secs(50));
    let cost = dearer.destroy(&me(), id).await.unwrap().cost.unwrap();
    assert_eq!((cost.charged, cost.absorbed), (money("1.000000001"), money("3.999999999")));
    dearer.destroy(&me(), id).await.unwrap();
    assert_eq!(dearer.absorbed(), [("ext.native".to_owned(), cost.absorbed)].into());
    assert!(workshop.engine.absorbed().is_empty(), "each process counts its own");
    audit(&workshop).await;
}
