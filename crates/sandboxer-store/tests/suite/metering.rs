//! Intervals: opened once, ended once, alive in between, listed afterwards.

use std::sync::Arc;

use sandboxer_core::ErrorKind;
use sandboxer_core::extension::Usage;
use sandboxer_core::ledger::Meter;
use sandboxer_core::page::Limit;
use sandboxer_store::{MeterFilter, Store, Stored};
use tokio::task::JoinSet;

use super::Place;
use super::books::*;
use super::fixture::*;

async fn listed_meters(store: &dyn Store, filter: &MeterFilter) -> Vec<Meter> {
    let limit = Limit::new(3).unwrap();
    let (mut out, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.meters(filter, cursor.as_deref(), limit).await.unwrap();
        out.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return out;
        }
    }
}

async fn all(store: &dyn Store) -> Vec<Meter> {
    listed_meters(store, &MeterFilter::default()).await
}

async fn running(store: &dyn Store, names: &[&str]) -> (Stored, Vec<Meter>) {
    let new = record();
    let open: Vec<_> = names.iter().map(|name| meter(new.id(), name, 1, at(0))).collect();
    (start(store, new, meters(&open)).await.unwrap(), open)
}

pub(crate) async fn an_interval_is_opened_and_ended_once(place: &dyn Place) {
    let store = place.open().await;
    let (one, open) = running(&*store, &["vcpu", "memory"]).await;
    assert_eq!(all(&*store).await, [open[1].clone(), open[0].clone()]);
    // Opening it again changes nothing.
    let later = Meter { started_at: at(5), ..open[0].clone() };
    let one = book(&*store, &one, meters(&[later])).await.unwrap();
    assert_eq!(all(&*store).await, [open[1].clone(), open[0].clone()]);
    let done = [ended(&open[0], at(60), "0.5"), ended(&open[1], at(60), "0.25")];
    let one = book(&*store, &one, meters(&done)).await.unwrap();
    // Neither does ending it again, at another time and cost, nor opening what has ended.
    let one = book(&*store, &one, meters(&[ended(&open[0], at(90), "0.75")])).await.unwrap();
    let one = book(&*store, &one, meters(&open)).await.unwrap();
    assert_eq!(all(&*store).await, [done[1].clone(), done[0].clone()]);
    // One that ends and the next that begins, in any order; one that was over before it was told.
    let second = meter(one.record.id(), "vcpu", 2, at(70));
    let one = book(&*store, &one, meters(std::slice::from_ref(&second))).await.unwrap();
    let third = meter(one.record.id(), "vcpu", 3, at(80));
    let at_once = ended(&meter(one.record.id(), "create", 3, at(80)), at(80), "0.01");
    let change = [third.clone(), at_once.clone(), ended(&second, at(80), "0.1")];
    book(&*store, &one, meters(&change)).await.unwrap();
    let told = all(&*store).await;
    assert_eq!(told.len(), 5);
    assert!(told.contains(&third) && told.contains(&at_once) && told.contains(&change[2]));
    assert_sound(&*store).await;
}

pub(crate) async fn two_intervals_of_a_meter_never_run_at_once(place: &dyn Place) {
    let store = place.open().await;
    let (one, open) = running(&*store, &["vcpu"]).await;
    let second = meter(one.record.id(), "vcpu", 2, at(10));
    let foreign = meter(sandboxer_core::SandboxId::generate(), "vcpu", 1, at(0));
    let twice = meter(one.record.id(), "disk", 1, at(0));
    for wrong in [vec![second], vec![foreign], vec![twice.clone(), twice]] {
        let error = book(&*store, &one, meters(&wrong)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{error:?}");
    }
    assert_eq!(store.get(one.record.id()).await.unwrap(), Some(one));
    assert_eq!(all(&*store).await, open);
}

pub(crate) async fn two_that_meter_the_same_sandbox_charge_once(place: &dyn Place) {
    let stores = [place.open().await, place.open().await];
    fund(&*stores[0], ACCOUNT, "10").await;
    let new = record();
    let open = meter(new.id(), "vcpu", 1, at(0));
    let mut books = hold("4");
    books.meters = vec![open.clone()];
    let one = start(&*stores[0], new, books).await.unwrap();
    let mut tasks = JoinSet::new();
    for turn in 0..8_i64 {
        let (store, one, open) = (Arc::clone(&stores[turn as usize % 2]), one.clone(), open.clone());
        tasks.spawn(async move {
            let mut books = settle("1", "0");
            books.meters = vec![ended(&open, at(60 + turn), "1")];
            end(&*store, &one, books).await.is_ok()
        });
    }
    assert_eq!(tasks.join_all().await.into_iter().filter(|won| *won).count(), 1);
    assert_eq!(stand(&*stores[0]).await, ["9", "0", "1", "0"].map(usd));
    assert_eq!(all(&*stores[1]).await.len(), 1);
    assert_sound(&*stores[0]).await;
}

pub(crate) async fn a_sign_of_life_never_goes_back(place: &dyn Place) {
    let store = place.open().await;
    let usage = |cpu| Usage { cpu_usec: Some(cpu), ..Usage::default() };
    let (one, open) = running(&*store, &["vcpu", "memory"]).await;
    let id = one.record.id();
    assert_eq!(store.last_alive(id).await.unwrap(), Some((at(0), None)));
    store.seen_alive(id, at(10), Some(&usage(7))).await.unwrap();
    store.seen_alive(id, at(5), Some(&usage(3))).await.unwrap();
    assert_eq!(store.last_alive(id).await.unwrap(), Some((at(10), Some(usage(7)))));
    // Alive without a word about what it used.
    store.seen_alive(id, at(20), None).await.unwrap();
    assert_eq!(store.last_alive(id).await.unwrap(), Some((at(20), Some(usage(7)))));
    assert!(all(&*store).await.iter().all(|meter| meter.alive_at == at(20)));
    let after = store.get(id).await.unwrap().unwrap();
    assert_eq!(after.version, one.version, "nobody's work collides with it");
    let done: Vec<_> = open.iter().map(|meter| ended(meter, at(30), "1")).collect();
    book(&*store, &one, meters(&done)).await.unwrap();
    store.seen_alive(id, at(40), None).await.unwrap();
    assert_eq!(store.last_alive(id).await.unwrap(), None);
    assert!(all(&*store).await.iter().all(|meter| meter.alive_at == at(30)));
    store.seen_alive(sandboxer_core::SandboxId::generate(), at(0), None).await.unwrap();
}

pub(crate) async fn pages_are_newest_first_and_filtered(place: &dyn Place) {
    let store = place.open().await;
    let mut made = Vec::new();
    for turn in 0..12_u32 {
        let mut new = record();
        new.owner_key = (turn % 2 == 0).then(|| "key_1".to_owned());
        // Three at each moment.
        let mut open = meter(new.id(), "vcpu", 1, at(i64::from(turn / 3) * 10));
        if turn % 4 == 0 {
            open.extension = "ext.native".into();
        }
        start(&*store, new, meters(std::slice::from_ref(&open))).await.unwrap();
        made.insert(0, (turn, open));
    }
    let expect = |fits: &dyn Fn(u32) -> bool| -> Vec<Meter> {
        made.iter().filter(|(turn, _)| fits(*turn)).map(|(_, meter)| meter.clone()).collect()
    };
    let owner_key = Some("key_1".to_owned());
    let extension = Some("ext.native".to_owned());
    let (from, until) = (Some(at(10)), Some(at(30)));
    let filter = MeterFilter::default;
    assert_eq!(all(&*store).await, expect(&|_| true));
    for (filter, expected) in [
        (MeterFilter { owner_key: owner_key.clone(), ..filter() }, expect(&|turn| turn % 2 == 0)),
        (MeterFilter { extension: extension.clone(), ..filter() }, expect(&|turn| turn % 4 == 0)),
        (MeterFilter { from, until, ..filter() }, expect(&|turn| (3..9).contains(&turn))),
        (MeterFilter { owner_key, extension, from, ..filter() }, expect(&|turn| turn % 4 == 0 && turn >= 3)),
        (MeterFilter { sandbox: Some(made[4].1.sandbox_id), ..filter() }, vec![made[4].1.clone()]),
    ] {
        assert_eq!(listed_meters(&*store, &filter).await, expected, "{filter:?}");
    }
}

pub(crate) async fn pages_of_one_sandbox_have_every_interval(place: &dyn Place) {
    let store = place.open().await;
    let (mut one, open) = running(&*store, &["vcpu", "memory"]).await;
    let mut last = open.clone();
    for turn in 1..5_u32 {
        let moment = at(i64::from(turn) * 10);
        let done = last.iter().map(|meter| ended(meter, moment, "1"));
        let next: Vec<_> =
            last.iter().map(|old| meter(old.sandbox_id, &old.meter, turn + 1, moment)).collect();
        let books: Vec<_> = done.chain(next.iter().cloned()).collect();
        one = book(&*store, &one, meters(&books)).await.unwrap();
        last = next;
    }
    let filter = MeterFilter { sandbox: Some(one.record.id()), ..MeterFilter::default() };
    let told = listed_meters(&*store, &filter).await;
    assert_eq!(told.len(), 10);
    assert!(told.is_sorted_by(|one, two| one.started_at >= two.started_at));
    assert_eq!(told.iter().filter(|meter| meter.ended_at.is_none()).count(), 2);
}

pub(crate) async fn a_foreign_cursor_is_refused(place: &dyn Place) {
    let store = place.open().await;
    for cursor in ["", "m1", "m11", "m11.x", "m1 1.1", "m1+1.1", "p1abc", "m199999999999999999999.1"] {
        let outcome = store.meters(&MeterFilter::default(), Some(cursor), Limit::DEFAULT).await;
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidInput, "{cursor}");
    }
}
