//! Holds: taken with a sandbox, changed with it, settled once.

use std::sync::Arc;

use sandboxer_core::ledger::{Kind, MOST, Payer};
use sandboxer_core::{ErrorKind, KeyId, Money, State};
use sandboxer_store::{EntryFilter, Hold};
use tokio::task::JoinSet;

use super::Place;
use super::books::*;
use super::fixture::*;

pub(crate) async fn a_hold_is_taken_changed_and_settled(place: &dyn Place) {
    let store = place.open().await;
    fund(&*store, ACCOUNT, "10").await;
    let one = start(&*store, record(), hold("2")).await.unwrap();
    assert_eq!(stand(&*store).await, ["8", "2", "0", "0"].map(usd));
    assert_eq!(store.account(ACCOUNT).await.unwrap().unwrap().held, usd("2"));
    let one = book(&*store, &one, hold("5")).await.unwrap();
    assert_eq!(stand(&*store).await, ["5", "5", "0", "0"].map(usd));
    let one = book(&*store, &one, hold("4")).await.unwrap();
    assert_eq!(stand(&*store).await, ["6", "4", "0", "0"].map(usd));
    end(&*store, &one, settle("1.25", "0.125")).await.unwrap();
    assert_eq!(stand(&*store).await, ["8.625", "0", "1.25", "0.125"].map(usd));
    let of_sandbox = EntryFilter { sandbox: Some(one.record.id()), ..EntryFilter::default() };
    let told: Vec<_> = entries(&*store, &of_sandbox)
        .await
        .into_iter()
        .map(|entry| (entry.transaction, entry.kind, entry.account, entry.amount.nanos(), entry.balance))
        .collect();
    let id = one.record.id();
    let line = |transaction: &str, kind, account: &str, amount: &str, balance: &str| {
        (format!("{id}/{transaction}"), kind, account.to_owned(), usd(amount).nanos(), usd(balance))
    };
    assert_eq!(
        told,
        [
            line("hold/1", Kind::Hold, ACCOUNT, "-2", "8"),
            line("hold/1", Kind::Hold, HELD, "2", "2"),
            line("hold/2", Kind::Hold, ACCOUNT, "-3", "5"),
            line("hold/2", Kind::Hold, HELD, "3", "5"),
            line("hold/3", Kind::Hold, ACCOUNT, "1", "6"),
            line("hold/3", Kind::Hold, HELD, "-1", "4"),
            line("settle", Kind::Settlement, HELD, "-4", "0"),
            line("settle", Kind::Settlement, PROVIDER, "1.25", "1.25"),
            line("settle", Kind::Settlement, "fees", "0.125", "0.125"),
            line("settle", Kind::Settlement, ACCOUNT, "2.625", "8.625"),
        ]
    );
    assert_sound(&*store).await;
}

pub(crate) async fn nothing_is_written_without_credits(place: &dyn Place) {
    let store = place.open().await;
    let refused = start(&*store, record(), hold("0.01")).await.unwrap_err();
    let text = refusal(&refused);
    assert!(text.contains(ACCOUNT) && text.contains("not opened") && text.contains("0.01 USD"), "{text}");
    assert!(text.contains("ask an operator"), "an agent adds none itself: {text}");
    fund(&*store, ACCOUNT, "1").await;
    let mut wanted = keyed(insert(record(), State::Ready), "k", "body");
    wanted.books = hold("1.01");
    let before = store.last_position().await.unwrap();
    let text = refusal(&store.insert(wanted).await.unwrap_err());
    assert!(text.contains("1.00 USD") && text.contains("1.01 USD"), "{text}");
    assert!(store.living().await.unwrap().is_empty());
    assert_eq!(store.last_position().await.unwrap(), before);
    assert_eq!(stand(&*store).await, ["1", "0", "0", "0"].map(usd));
    // The key was not used up either.
    let mut again = keyed(insert(record(), State::Ready), "k", "another body");
    again.books = hold("1");
    store.insert(again).await.unwrap();
    assert_eq!(stand(&*store).await, ["0", "1", "0", "0"].map(usd));
    // More than there is, for a sandbox that lives: it stays as it was.
    let living = store.living().await.unwrap().remove(0);
    refusal(&book(&*store, &living, hold("1.000000001")).await.unwrap_err());
    assert_eq!(store.get(living.record.id()).await.unwrap(), Some(living));
    assert_sound(&*store).await;
}

pub(crate) async fn a_hold_of_nothing_needs_no_account(place: &dyn Place) {
    let store = place.open().await;
    let free = start(&*store, record(), hold("0")).await.unwrap();
    let free = book(&*store, &free, hold("0")).await.unwrap();
    end(&*store, &free, settle("0", "0")).await.unwrap();
    assert!(store.accounts().await.unwrap().is_empty());
    assert!(entries(&*store, &EntryFilter::default()).await.is_empty());
}

pub(crate) async fn the_most_specific_opened_account_pays_to_the_end(place: &dyn Place) {
    let store = place.open().await;
    let key = KeyId::generate().to_string();
    let of_key = format!("key:{key}");
    let payer = Payer { key: Some(key), ..payer() };
    let to = |amount: &str| {
        let mut books = hold(amount);
        books.hold = Some(Hold { payer: payer.clone(), amount: usd(amount), at: at(0) });
        books
    };
    fund(&*store, "org:acme", "10").await;
    let first = start(&*store, record(), to("1")).await.unwrap();
    fund(&*store, ACCOUNT, "10").await;
    let second = start(&*store, record(), to("2")).await.unwrap();
    // Opened without a cent in it, it pays all the same, as far as its overdraft goes.
    assert_eq!(store.overdraft(&of_key, usd("3")).await.unwrap().overdraft, usd("3"));
    start(&*store, record(), to("3")).await.unwrap();
    refusal(&start(&*store, record(), to("0.000000001")).await.unwrap_err());
    // Whoever began to pay goes on.
    let first = book(&*store, &first, to("4")).await.unwrap();
    end(&*store, &second, settle("2", "0")).await.unwrap();
    end(&*store, &first, settle("0", "0")).await.unwrap();
    assert_eq!(balance(&*store, "org:acme").await, usd("10"));
    assert_eq!(balance(&*store, ACCOUNT).await, usd("8"));
    assert_eq!(balance(&*store, &of_key).await, usd("-3"));
    let names: Vec<_> = store.accounts().await.unwrap().into_iter().map(|one| one.account).collect();
    assert_eq!(names, [of_key, "org:acme".to_owned(), ACCOUNT.to_owned()]);
    assert_sound(&*store).await;
}

pub(crate) async fn a_settlement_happens_once(place: &dyn Place) {
    let store = place.open().await;
    fund(&*store, ACCOUNT, "10").await;
    let one = start(&*store, record(), hold("4")).await.unwrap();
    let one = book(&*store, &one, settle("1", "0")).await.unwrap();
    let one = book(&*store, &one, settle("3", "1")).await.unwrap();
    assert_eq!(stand(&*store).await, ["9", "0", "1", "0"].map(usd));
    // What is settled is not held again.
    assert_eq!(book(&*store, &one, hold("1")).await.unwrap_err().kind(), ErrorKind::Internal);
    let one = book(&*store, &one, hold("0")).await.unwrap();
    end(&*store, &one, settle("0", "0")).await.unwrap();
    assert_eq!(stand(&*store).await, ["9", "0", "1", "0"].map(usd));
    // Without a hold there is nothing to settle.
    let free = start(&*store, record(), Default::default()).await.unwrap();
    end(&*store, &free, settle("0", "0")).await.unwrap();
    // A hold that was given back is settled without an entry.
    let back = start(&*store, record(), hold("1")).await.unwrap();
    let back = book(&*store, &back, hold("0")).await.unwrap();
    end(&*store, &back, settle("0", "0")).await.unwrap();
    assert_eq!(stand(&*store).await, ["9", "0", "1", "0"].map(usd));
    assert_sound(&*store).await;
}

pub(crate) async fn a_charge_above_the_hold_is_a_defect(place: &dyn Place) {
    let store = place.open().await;
    fund(&*store, ACCOUNT, "10").await;
    let one = start(&*store, record(), hold("4")).await.unwrap();
    for books in [settle("4.000000001", "0"), settle("3", "1.000000001")] {
        let error = end(&*store, &one, books).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{error:?}");
    }
    assert_eq!(store.get(one.record.id()).await.unwrap().unwrap().record.state(), State::Ready);
    end(&*store, &one, settle("3", "1")).await.unwrap();
    assert_eq!(stand(&*store).await, ["6", "0", "3", "1"].map(usd));
}

pub(crate) async fn a_change_that_lost_the_race_moves_nothing(place: &dyn Place) {
    let store = place.open().await;
    fund(&*store, ACCOUNT, "10").await;
    let stale = start(&*store, record(), hold("1")).await.unwrap();
    let newer = book(&*store, &stale, hold("2")).await.unwrap();
    for books in [hold("5"), settle("1", "0"), meters(&[meter(stale.record.id(), "vcpu", 1, at(0))])] {
        assert_eq!(book(&*store, &stale, books).await.unwrap_err().kind(), ErrorKind::Conflict);
    }
    assert_eq!(stand(&*store).await, ["8", "2", "0", "0"].map(usd));
    assert_eq!(store.last_alive(newer.record.id()).await.unwrap(), None);
    // Of many that end it at once, one does.
    let mut tasks = JoinSet::new();
    for turn in 0..16 {
        let (store, newer) = (Arc::clone(&store), newer.clone());
        let cost = if turn % 2 == 0 { "1" } else { "2" };
        tasks.spawn(async move { end(&*store, &newer, settle(cost, "0")).await.is_ok() });
    }
    assert_eq!(tasks.join_all().await.into_iter().filter(|won| *won).count(), 1);
    let [account, held, provider, _] = stand(&*store).await;
    assert_eq!((held, account.nanos() + provider.nanos()), (Money::ZERO, usd("10").nanos()));
    assert_sound(&*store).await;
}

pub(crate) async fn a_reused_sandbox_holds_nothing_more(place: &dyn Place) {
    let store = place.open().await;
    fund(&*store, ACCOUNT, "10").await;
    let mut shared = record();
    shared.reuse_key = Some("shared".into());
    start(&*store, shared, hold("1")).await.unwrap();
    let mut twin = record();
    twin.reuse_key = Some("shared".into());
    let mut wanted = insert(twin, State::Ready);
    wanted.books = hold("1");
    assert!(matches!(store.insert(wanted).await.unwrap(), sandboxer_store::Inserted::Reusable(_)));
    assert_eq!(stand(&*store).await, ["9", "1", "0", "0"].map(usd));
}

pub(crate) async fn creates_at_once_never_pass_the_balance_together(place: &dyn Place) {
    let stores = [place.open().await, place.open().await];
    fund(&*stores[0], ACCOUNT, "7.5").await;
    let mut tasks = JoinSet::new();
    for turn in 0..32 {
        let store = Arc::clone(&stores[turn % 2]);
        tasks.spawn(async move { start(&*store, record(), hold("1")).await });
    }
    let outcomes = tasks.join_all().await;
    assert_eq!(outcomes.iter().filter(|one| one.is_ok()).count(), 7);
    for error in outcomes.into_iter().filter_map(Result::err) {
        refusal(&error);
    }
    assert_eq!(stand(&*stores[0]).await, ["0.5", "7", "0", "0"].map(usd));
    assert_eq!(stores[1].living().await.unwrap().len(), 7);
    assert_sound(&*stores[1]).await;
}

pub(crate) async fn amounts_beyond_all_bounds_are_refused(place: &dyn Place) {
    let store = place.open().await;
    fund(&*store, ACCOUNT, "1000000000").await;
    let of = |amount: Money| {
        let mut books = hold("0");
        books.hold = Some(Hold { payer: payer(), amount, at: at(0) });
        books
    };
    let beyond = [Money::from_nanos(-1), Money::from_nanos(MOST.nanos() + 1), Money::from_nanos(i128::MAX)];
    for amount in beyond {
        let error = start(&*store, record(), of(amount)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
    }
    let one = start(&*store, record(), of(MOST)).await.unwrap();
    let error = end(&*store, &one, settle("-1", "0")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
    end(&*store, &one, settle("1000000000", "0")).await.unwrap();
    // Nine thousand million dollars are the most that anybody has, and the world's debt is bounded as well.
    for turn in 0..8 {
        fund(&*store, &format!("org:o{turn}"), "1000000000").await;
    }
    let more = transfer("more", "world", "org:more", "0.000000001");
    let error = store.transfer(&more).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
    assert!(error.to_string().contains("world"), "{error:?}");
    assert_sound(&*store).await;
}

pub(crate) async fn a_sandbox_is_remembered_until_it_is_settled(place: &dyn Place) {
    let store = place.open().await;
    fund(&*store, ACCOUNT, "10").await;
    let open = start(&*store, record(), hold("1")).await.unwrap();
    let running = meter(open.record.id(), "vcpu", 1, at(0));
    let open = book(&*store, &open, meters(std::slice::from_ref(&running))).await.unwrap();
    let mut update = change(&open, &[State::Destroying, State::Destroyed]);
    update.record.sandbox.destroyed_at = Some(at(60));
    let open = store.update(update).await.unwrap();
    super::pruning::deliver_all(&*store).await;
    assert_eq!(store.prune(at(1_000)).await.unwrap(), 0);
    let wrong = store.audit().await.unwrap().wrong;
    assert!(wrong.len() == 1 && wrong[0].contains("destroyed"), "{wrong:?}");
    let mut books = settle("0.5", "0");
    books.meters = vec![ended(&running, at(60), "0.5")];
    let mut update = change(&open, &[]);
    update.books = books;
    store.update(update).await.unwrap();
    assert_eq!(store.prune(at(1_000)).await.unwrap(), 1);
    assert_eq!(store.get(open.record.id()).await.unwrap(), None);
    // The books outlive it.
    let filter = EntryFilter { sandbox: Some(open.record.id()), ..EntryFilter::default() };
    assert_eq!(entries(&*store, &filter).await.len(), 5);
    let kept = store.meters(&Default::default(), None, Default::default()).await.unwrap().items;
    assert_eq!(kept, [ended(&running, at(60), "0.5")]);
    assert_sound(&*store).await;
}

pub(crate) async fn what_ended_without_a_charge_is_found(place: &dyn Place) {
    let store = place.open().await;
    // Nothing is held, so that nobody need have paid in.
    let mut free = Vec::new();
    for second in [60, 61, 61] {
        let row = start(&*store, record(), hold("0")).await.unwrap();
        end(&*store, &row, settle_at("0", "0", at(second))).await.unwrap();
        free.push((row.record.id(), at(second)));
    }
    free.sort_by_key(|(id, end)| (*end, *id));
    let living = start(&*store, record(), hold("0")).await.unwrap();
    fund(&*store, ACCOUNT, "10").await;
    let paid = start(&*store, record(), hold("1")).await.unwrap();
    end(&*store, &paid, settle_at("0.5", "0", at(60))).await.unwrap();
    let found = async |after, until| {
        store.ended_free(ACCOUNT, after, until, sandboxer_core::page::Limit::new(2).unwrap()).await.unwrap()
    };
    assert_eq!(found((at(0), None), at(61)).await, free[..1]);
    assert_eq!(found((at(60), None), at(99)).await, free[..2], "a page of them");
    assert_eq!(found((free[1].1, Some(free[1].0)), at(99)).await, free[2..]);
    // It may still become something to pay for.
    book(&*store, &living, hold("2")).await.unwrap();
    assert_eq!(balance(&*store, ACCOUNT).await, usd("7.5"));
    assert_sound(&*store).await;
}
