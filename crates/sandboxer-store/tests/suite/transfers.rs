//! Credits that come and go: once each, however often they are asked for, and never below a limit.

use std::sync::Arc;

use sandboxer_core::ledger::{Kind, WORLD};
use sandboxer_core::{ErrorKind, Money};
use sandboxer_store::{EntryFilter, OwnKey, Transfer};
use tokio::task::JoinSet;

use super::Place;
use super::books::*;
use super::fixture::*;

pub(crate) async fn a_transfer_is_made_once(place: &dyn Place) {
    let store = place.open().await;
    let paid = transfer("payment 1", WORLD, ACCOUNT, "10");
    let first = store.transfer(&paid).await.unwrap();
    let shown: Vec<_> = first.iter().map(|e| (e.account.as_str(), e.amount, e.balance)).collect();
    assert_eq!(shown, [(WORLD, usd("-10"), usd("-10")), (ACCOUNT, usd("10"), usd("10"))]);
    assert_eq!((first[0].kind, first[0].memo.as_str(), first[0].time), (Kind::Credit, "a test", at(0)));
    // Later, through another door.
    let again = Transfer { time: at(1_000), ..paid.clone() };
    assert_eq!(place.open().await.transfer(&again).await.unwrap(), first);
    assert_eq!(entries(&*store, &EntryFilter::default()).await, first);
    for other in [
        Transfer { amount: usd("11"), ..paid.clone() },
        Transfer { memo: "another".into(), ..paid.clone() },
        Transfer { kind: Kind::Adjustment, ..paid.clone() },
        Transfer { to: "org:acme".into(), ..paid.clone() },
        Transfer { from: "fees".into(), ..paid.clone() },
    ] {
        assert_eq!(store.transfer(&other).await.unwrap_err().kind(), ErrorKind::Conflict, "{other:?}");
    }
    assert_eq!(balance(&*store, ACCOUNT).await, usd("10"));
    assert_sound(&*store).await;
}

pub(crate) async fn many_at_once_are_each_made_once(place: &dyn Place) {
    let stores = [place.open().await, place.open().await];
    let mut tasks = JoinSet::new();
    for turn in 0..400_usize {
        let store = Arc::clone(&stores[turn % 2]);
        // Every payment is sent four times.
        let paid = transfer(&format!("payment {}", turn / 4), WORLD, ACCOUNT, "0.25");
        tasks.spawn(async move { store.transfer(&paid).await.unwrap() });
    }
    let mut answers = tasks.join_all().await;
    answers.sort_by_key(|entries| entries[0].position);
    answers.dedup();
    assert_eq!(answers.len(), 100, "the same answer for everybody who asked");
    assert_eq!(balance(&*stores[0], ACCOUNT).await, usd("25"));
    let of_account = EntryFilter { account: Some(ACCOUNT.into()), ..EntryFilter::default() };
    let told = entries(&*stores[1], &of_account).await;
    let expected: Vec<_> = (1..=100).map(|turn| Money::from_nanos(turn * usd("0.25").nanos())).collect();
    assert_eq!(told.into_iter().map(|entry| entry.balance).collect::<Vec<_>>(), expected);
    assert_sound(&*stores[0]).await;
}

pub(crate) async fn one_that_is_refused_spoils_no_other(place: &dyn Place) {
    let stores = [place.open().await, place.open().await];
    fund(&*stores[0], ACCOUNT, "5").await;
    stores[0].overdraft(ACCOUNT, usd("0.5")).await.unwrap();
    let mut tasks = JoinSet::new();
    for turn in 0..64_usize {
        let store = Arc::clone(&stores[turn % 2]);
        let out = match turn % 8 {
            0 => transfer(&format!("in {turn}"), WORLD, "org:acme", "1"),
            1 => transfer(&format!("wrong {turn}"), "org:nobody", WORLD, "1"),
            _ => transfer(&format!("out {turn}"), ACCOUNT, WORLD, "1"),
        };
        tasks.spawn(async move { (turn % 8, store.transfer(&out).await) });
    }
    let outcomes = tasks.join_all().await;
    let made = |kind: &dyn Fn(usize) -> bool| {
        outcomes.iter().filter(|(turn, outcome)| kind(*turn) && outcome.is_ok()).count()
    };
    assert_eq!((made(&|turn| turn == 0), made(&|turn| turn == 1), made(&|turn| turn > 1)), (8, 0, 5));
    for (_, outcome) in &outcomes {
        if let Err(error) = outcome {
            refusal(error);
        }
    }
    assert_eq!(balance(&*stores[0], ACCOUNT).await, Money::ZERO);
    assert_eq!(balance(&*stores[1], "org:acme").await, usd("8"));
    assert_eq!(stores[0].account("org:nobody").await.unwrap(), None);
    assert_sound(&*stores[0]).await;
}

pub(crate) async fn callers_that_go_away_leave_the_others_alone(place: &dyn Place) {
    let store = place.open().await;
    for round in 0..20_u64 {
        let mut tasks = JoinSet::new();
        for turn in 0..20 {
            let store = Arc::clone(&store);
            let paid = transfer(&format!("payment {round} {turn}"), WORLD, ACCOUNT, "1");
            tasks.spawn(async move {
                let patience =
                    std::time::Duration::from_micros(if turn % 2 == 0 { round * 100 } else { 60_000_000 });
                (turn, tokio::time::timeout(patience, store.transfer(&paid)).await.is_ok())
            });
        }
        let told = tasks.join_all().await;
        assert!(told.iter().all(|(turn, told)| turn % 2 == 0 || *told), "who waits is told");
    }
    // Whoever was told nothing asks again, and everything is there once.
    for round in 0..20 {
        for turn in 0..20 {
            let paid = transfer(&format!("payment {round} {turn}"), WORLD, ACCOUNT, "1");
            assert_eq!(store.transfer(&paid).await.unwrap().len(), 2);
        }
    }
    assert_eq!(balance(&*store, ACCOUNT).await, usd("400"));
    assert_sound(&*store).await;
}

pub(crate) async fn what_cannot_be_moved_is_refused(place: &dyn Place) {
    let store = place.open().await;
    fund(&*store, ACCOUNT, "5").await;
    let sound = transfer("x", WORLD, ACCOUNT, "1");
    for wrong in [
        Transfer { amount: Money::ZERO, ..sound.clone() },
        Transfer { amount: usd("-1"), ..sound.clone() },
        Transfer { amount: Money::from_nanos(i128::MAX), ..sound.clone() },
        Transfer { to: WORLD.into(), ..sound.clone() },
        Transfer { to: HELD.into(), ..sound.clone() },
        Transfer { from: HELD.into(), ..sound.clone() },
        Transfer { to: "provider:A B".into(), ..sound.clone() },
        Transfer { to: "workspace:research".into(), ..sound.clone() },
        Transfer { to: "somebody".into(), ..sound.clone() },
        Transfer { id: String::new(), ..sound.clone() },
        Transfer { id: "x".repeat(301), ..sound.clone() },
        Transfer { id: "sbx_1/settle".into(), ..sound.clone() },
        Transfer { memo: "x".repeat(1_025), ..sound.clone() },
        Transfer { memo: "a\u{0}b".into(), ..sound.clone() },
        Transfer { kind: Kind::Hold, ..sound.clone() },
    ] {
        assert_eq!(store.transfer(&wrong).await.unwrap_err().kind(), ErrorKind::InvalidInput, "{wrong:?}");
    }
    for (account, amount) in [(ACCOUNT, "-1"), ("fees", "1"), ("workspace:research", "1"), (HELD, "1")] {
        let error = store.overdraft(account, usd(amount)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{account} {amount}");
    }
    assert_eq!(entries(&*store, &EntryFilter::default()).await.len(), 2);
}

pub(crate) async fn an_overdraft_can_be_lowered(place: &dyn Place) {
    let store = place.open().await;
    assert_eq!(store.account(ACCOUNT).await.unwrap(), None);
    let opened = store.overdraft(ACCOUNT, usd("5")).await.unwrap();
    assert_eq!((opened.balance, opened.held, opened.overdraft), (Money::ZERO, Money::ZERO, usd("5")));
    let one = start(&*store, record(), hold("5")).await.unwrap();
    assert_eq!(balance(&*store, ACCOUNT).await, usd("-5"));
    store.overdraft(ACCOUNT, Money::ZERO).await.unwrap();
    refusal(&start(&*store, record(), hold("0.01")).await.unwrap_err());
    // What comes back is always welcome.
    let one = book(&*store, &one, hold("3")).await.unwrap();
    end(&*store, &one, settle("3", "0")).await.unwrap();
    assert_eq!(balance(&*store, ACCOUNT).await, usd("-3"));
    assert_sound(&*store).await;
}

pub(crate) async fn entries_are_filtered(place: &dyn Place) {
    let store = place.open().await;
    for turn in 0..20_i64 {
        let mut paid = transfer(&format!("payment {turn}"), WORLD, ACCOUNT, "1");
        paid.time = at(turn * 10);
        store.transfer(&paid).await.unwrap();
    }
    let one = start(&*store, record(), hold("3")).await.unwrap();
    let of_account = EntryFilter { account: Some(ACCOUNT.into()), ..EntryFilter::default() };
    let all = entries(&*store, &of_account).await;
    assert_eq!(all.len(), 21);
    assert!(all.is_sorted_by_key(|entry| entry.position));
    let some = EntryFilter { from: Some(at(50)), until: Some(at(80)), ..of_account.clone() };
    let times: Vec<_> = entries(&*store, &some).await.into_iter().map(|entry| entry.time).collect();
    assert_eq!(times, [at(50), at(60), at(70)]);
    let both = EntryFilter { sandbox: Some(one.record.id()), ..of_account };
    let found = entries(&*store, &both).await;
    assert_eq!((found.len(), found[0].amount, found[0].sandbox_id), (1, usd("-3"), Some(one.record.id())));
    let nothing = EntryFilter { from: Some(at(1_000_000)), ..EntryFilter::default() };
    assert!(entries(&*store, &nothing).await.is_empty());
}

/// A clock that goes back leaves what was entered before as it was: order and time agree.
pub(crate) async fn the_books_never_go_back(place: &dyn Place) {
    let store = place.open().await;
    let paid = |id: &str, seconds| Transfer { time: at(seconds), ..transfer(id, WORLD, ACCOUNT, "5") };
    store.transfer(&paid("late", 1_000)).await.unwrap();
    let early = store.transfer(&paid("early", 10)).await.unwrap();
    assert!(early.iter().all(|entry| entry.time == at(1_000)), "{early:?}");
    assert_eq!(place.open().await.transfer(&paid("early", 5_000)).await.unwrap(), early, "a repeat");
    let one = start(&*store, record(), hold_at("1", at(20))).await.unwrap();
    store.transfer(&paid("later", 2_000)).await.unwrap();
    end(&*store, &one, settle_at("1", "0", at(30))).await.unwrap();
    // Many that are written together.
    let mut tasks = JoinSet::new();
    for turn in 0..40_i64 {
        let (store, one) = (Arc::clone(&store), paid(&format!("at once {turn}"), 3_000 - turn));
        tasks.spawn(async move { store.transfer(&one).await.unwrap() });
    }
    tasks.join_all().await;
    let all = entries(&*store, &EntryFilter::default()).await;
    assert!(all.is_sorted_by_key(|entry| entry.time), "{all:#?}");
    let early = EntryFilter { until: Some(at(1_000)), ..EntryFilter::default() };
    assert!(entries(&*store, &early).await.is_empty(), "what is over stays as it was");
    assert_sound(&*store).await;
}

pub(crate) async fn entries_of_a_key_outlive_its_sandboxes(place: &dyn Place) {
    let store = place.open().await;
    fund(&*store, "org:acme", "10").await;
    fund(&*store, "key:key_06ftwfsxfr31q2gm8v2yzv9ynm", "3").await;
    let of = |key: &str| {
        let mut books = hold("1");
        if let Some(hold) = &mut books.hold {
            hold.payer.key = Some(key.into());
        }
        books
    };
    let one = start(&*store, record(), of("key_1")).await.unwrap();
    start(&*store, record(), of("key_2")).await.unwrap();
    end(&*store, &one, settle("0.25", "0")).await.unwrap();
    let asked = |subject: &str| EntryFilter { subject: Some(subject.into()), ..EntryFilter::default() };
    let told = entries(&*store, &asked("key:key_1")).await;
    assert!(told.iter().all(|entry| entry.sandbox_id == Some(one.record.id())), "{told:#?}");
    assert_eq!(told.len(), 5, "two of the hold and three of the settlement");
    let of_org = EntryFilter { account: Some("org:acme".into()), ..asked("key:key_1") };
    assert_eq!(entries(&*store, &of_org).await.len(), 2);
    let other = EntryFilter { sandbox: Some(one.record.id()), ..asked("key:key_2") };
    assert!(entries(&*store, &other).await.is_empty());
    let own = entries(&*store, &asked("key:key_06ftwfsxfr31q2gm8v2yzv9ynm")).await;
    assert_eq!(own.len(), 1, "what was paid into its own account");
}

pub(crate) async fn own_keys_are_put_found_and_removed(place: &dyn Place) {
    let store = place.open().await;
    let key = |extension: &str, fee| OwnKey {
        organisation: "acme".into(),
        workspace: "research".into(),
        extension: extension.into(),
        secret: "e2b-key".into(),
        fee_basis_points: fee,
        created_at: at(0),
    };
    store.own_key_put(&key("ext.e2b", 0)).await.unwrap();
    store.own_key_put(&key("ext.e2b", 250)).await.unwrap();
    store.own_key_put(&key("ext.daytona", 0)).await.unwrap();
    assert_eq!(store.own_key("acme", "research", "ext.e2b").await.unwrap(), Some(key("ext.e2b", 250)));
    assert_eq!(store.own_key("acme", "other", "ext.e2b").await.unwrap(), None);
    assert_eq!(store.own_keys().await.unwrap(), [key("ext.daytona", 0), key("ext.e2b", 250)]);
    let removed = store.own_key_remove("acme", "research", "ext.e2b").await.unwrap();
    assert_eq!(removed, key("ext.e2b", 250));
    let error = store.own_key_remove("acme", "research", "ext.e2b").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let nameless = OwnKey { secret: String::new(), ..key("ext.e2b", 0) };
    assert_eq!(store.own_key_put(&nameless).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    let odd = key("Ext E2B", 0);
    assert_eq!(store.own_key_put(&odd).await.unwrap_err().kind(), ErrorKind::InvalidInput);
}
