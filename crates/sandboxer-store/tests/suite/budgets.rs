//! Budgets: by day and month, for whoever spends.

use std::sync::Arc;

use jiff::Timestamp;
use sandboxer_core::ledger::{Payer, Period};
use sandboxer_core::{ErrorKind, Money};
use sandboxer_store::Store;
use tokio::task::JoinSet;

use super::Place;
use super::books::*;
use super::fixture::*;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

async fn used(store: &dyn Store, now: &str) -> Vec<Money> {
    store.budgets(time(now)).await.unwrap().into_iter().map(|budget| budget.used).collect()
}

pub(crate) async fn a_day_ends_at_midnight_in_utc(place: &dyn Place) {
    let store = place.open().await;
    fund(&*store, ACCOUNT, "100").await;
    store.budget("actor:acme/agt", Period::Day, Some(usd("5"))).await.unwrap();
    let evening = time("2026-01-31T23:59:59.999999Z");
    start(&*store, record(), hold_at("4", evening)).await.unwrap();
    let text = refusal(&start(&*store, record(), hold_at("1.5", evening)).await.unwrap_err());
    for part in ["actor:acme/agt", "day", "5.00 USD", "4.00 USD", "1.50 USD", "midnight"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    start(&*store, record(), hold_at("1", evening)).await.unwrap();
    let morning = time("2026-02-01T00:00:00Z");
    start(&*store, record(), hold_at("5", morning)).await.unwrap();
    refusal(&start(&*store, record(), hold_at("0.01", morning)).await.unwrap_err());
    // A clock that goes back finds the day before as it was left.
    refusal(&start(&*store, record(), hold_at("0.01", evening)).await.unwrap_err());
    assert_eq!(used(&*store, "2026-01-31T12:00:00Z").await, [usd("5")]);
    assert_eq!(used(&*store, "2026-02-01T12:00:00Z").await, [usd("5")]);
    assert_eq!(used(&*store, "2026-02-02T00:00:00Z").await, [Money::ZERO]);
}

pub(crate) async fn a_month_counts_all_its_days(place: &dyn Place) {
    let store = place.open().await;
    fund(&*store, ACCOUNT, "100").await;
    store.budget("profile:acme/profile.agent-dev", Period::Month, Some(usd("10"))).await.unwrap();
    for day in ["2028-02-01T00:00:00Z", "2028-02-15T12:00:00Z", "2028-02-29T23:59:59Z"] {
        start(&*store, record(), hold_at("3", time(day))).await.unwrap();
    }
    let last = time("2028-02-29T23:59:59Z");
    let text = refusal(&start(&*store, record(), hold_at("1.01", last)).await.unwrap_err());
    assert!(text.contains("month") && text.contains("9.00 USD"), "{text}");
    start(&*store, record(), hold_at("1", last)).await.unwrap();
    start(&*store, record(), hold_at("10", time("2028-03-01T00:00:00Z"))).await.unwrap();
    assert_eq!(used(&*store, "2028-02-10T00:00:00Z").await, [usd("10")]);
    assert_eq!(used(&*store, "2028-03-10T00:00:00Z").await, [usd("10")]);
}

pub(crate) async fn everybody_concerned_is_asked(place: &dyn Place) {
    let store = place.open().await;
    let key = sandboxer_core::KeyId::generate().to_string();
    let payer = Payer { key: Some(key), ..payer() };
    fund(&*store, ACCOUNT, "100").await;
    let of = |amount: &str| {
        let mut books = hold(amount);
        books.hold.as_mut().unwrap().payer = payer.clone();
        books
    };
    for subject in payer.subjects() {
        for period in [Period::Day, Period::Month] {
            store.budget(&subject, period, Some(usd("1"))).await.unwrap();
            let text = refusal(&start(&*store, record(), of("1.01")).await.unwrap_err());
            assert!(text.contains(&subject) && text.contains(period.as_str()), "{text}");
            store.budget(&subject, period, None).await.unwrap();
        }
    }
    store.budget("org:other", Period::Day, Some(Money::ZERO)).await.unwrap();
    store.budget("actor:acme/adm", Period::Day, Some(Money::ZERO)).await.unwrap();
    start(&*store, record(), of("1.01")).await.unwrap();
    assert_eq!(store.budgets(at(0)).await.unwrap().len(), 2);
}

pub(crate) async fn organisations_do_not_share_a_budget(place: &dyn Place) {
    let store = place.open().await;
    fund(&*store, ACCOUNT, "100").await;
    fund(&*store, "org:other", "100").await;
    let of = |organisation: &str, amount: &str| {
        let mut books = hold(amount);
        books.hold.as_mut().unwrap().payer.organisation = organisation.into();
        books
    };
    let subjects = |organisation: &str| {
        let payer = Payer { organisation: organisation.into(), ..payer() };
        payer.subjects().split_off(payer.accounts().len())
    };
    for subject in subjects("acme") {
        store.budget(&subject, Period::Day, Some(usd("5"))).await.unwrap();
    }
    start(&*store, record(), of("other", "6")).await.unwrap();
    start(&*store, record(), of("acme", "5")).await.unwrap();
    refusal(&start(&*store, record(), of("acme", "0.01")).await.unwrap_err());
    for subject in subjects("other") {
        store.budget(&subject, Period::Day, Some(usd("7"))).await.unwrap();
    }
    let told = refusal(&start(&*store, record(), of("other", "1.01")).await.unwrap_err());
    assert!(told.contains("actor:other/agt") && told.contains("6.00 USD"), "{told}");
    start(&*store, record(), of("other", "1")).await.unwrap();
    assert_eq!(used(&*store, "2026-01-01T12:00:00Z").await, ["5", "7", "5", "7"].map(usd));
}

pub(crate) async fn a_budget_set_later_counts_what_was_before(place: &dyn Place) {
    let store = place.open().await;
    fund(&*store, ACCOUNT, "100").await;
    let one = start(&*store, record(), hold("4")).await.unwrap();
    start(&*store, record(), hold("2")).await.unwrap();
    store.budget("org:acme", Period::Day, Some(usd("7"))).await.unwrap();
    let found = store.budgets(at(0)).await.unwrap().remove(0);
    assert_eq!((found.subject.as_str(), found.period), ("org:acme", Period::Day));
    assert_eq!((found.limit, found.used), (usd("7"), usd("6")));
    refusal(&book(&*store, &one, hold("5.01")).await.unwrap_err());
    let one = book(&*store, &one, hold("5")).await.unwrap();
    // What is given back or not charged may be spent again.
    let one = book(&*store, &one, hold("4.5")).await.unwrap();
    assert_eq!(used(&*store, "2026-01-01T12:00:00Z").await, [usd("6.5")]);
    end(&*store, &one, settle("1", "0.5")).await.unwrap();
    assert_eq!(used(&*store, "2026-01-01T12:00:00Z").await, [usd("3.5")]);
    // A lower one refuses what is new and leaves alone what is.
    store.budget("org:acme", Period::Day, Some(usd("1"))).await.unwrap();
    refusal(&start(&*store, record(), hold("0.01")).await.unwrap_err());
}

pub(crate) async fn what_was_not_used_goes_back_to_the_latest_day(place: &dyn Place) {
    let store = place.open().await;
    fund(&*store, ACCOUNT, "100").await;
    store.budget("org:acme", Period::Day, Some(usd("50"))).await.unwrap();
    store.budget("org:acme", Period::Month, Some(usd("50"))).await.unwrap();
    let one = start(&*store, record(), hold_at("3", time("2026-03-31T20:00:00Z"))).await.unwrap();
    let one = book(&*store, &one, hold_at("5", time("2026-04-01T01:00:00Z"))).await.unwrap();
    let one = book(&*store, &one, hold_at("9", time("2026-04-02T01:00:00Z"))).await.unwrap();
    end(&*store, &one, settle_at("3.5", "0", time("2026-04-02T02:00:00Z"))).await.unwrap();
    assert_eq!(used(&*store, "2026-03-31T00:00:00Z").await, [usd("3"), usd("3")]);
    assert_eq!(used(&*store, "2026-04-01T00:00:00Z").await, [usd("0.5"), usd("0.5")]);
    assert_eq!(used(&*store, "2026-04-02T00:00:00Z").await, [usd("0"), usd("0.5")]);
    assert_sound(&*store).await;
}

pub(crate) async fn creates_at_once_never_pass_a_budget_together(place: &dyn Place) {
    let stores = [place.open().await, place.open().await];
    fund(&*stores[0], ACCOUNT, "100").await;
    stores[0].budget("actor:acme/agt", Period::Month, Some(usd("5.5"))).await.unwrap();
    let mut tasks = JoinSet::new();
    for turn in 0..32 {
        let store = Arc::clone(&stores[turn % 2]);
        tasks.spawn(async move { start(&*store, record(), hold("1")).await });
    }
    let outcomes = tasks.join_all().await;
    assert_eq!(outcomes.iter().filter(|one| one.is_ok()).count(), 5);
    for error in outcomes.into_iter().filter_map(Result::err) {
        assert!(refusal(&error).contains("actor:acme/agt"), "{error:?}");
    }
    assert_eq!(stand(&*stores[1]).await, ["95", "5", "0", "0"].map(usd));
    assert_sound(&*stores[1]).await;
}

pub(crate) async fn budgets_that_cannot_be_are_refused(place: &dyn Place) {
    let store = place.open().await;
    for (subject, limit) in [
        ("actor:acme/agt", "-1"),
        ("actor:acme/agt", "1000000001"),
        ("held:org:acme", "1"),
        ("world", "1"),
        ("", "1"),
    ] {
        let error = store.budget(subject, Period::Day, Some(usd(limit))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{subject} {limit}");
    }
    store.budget("actor:acme/agt", Period::Day, None).await.unwrap();
    assert!(store.budgets(at(0)).await.unwrap().is_empty());
}
