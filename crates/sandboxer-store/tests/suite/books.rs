//! Money for tests: who pays, what is held, what is moved, in few words.

use jiff::Timestamp;
use sandboxer_core::bill::Settlement;
use sandboxer_core::ledger::{Entry, Kind, Meter, Payer, WORLD};
use sandboxer_core::page::Limit;
use sandboxer_core::sandbox::SandboxRecord;
use sandboxer_core::tariff::Phase;
use sandboxer_core::{Actor, Dur, Error, Money, Result, SandboxId, State};
use sandboxer_store::{Books, EntryFilter, Hold, Inserted, Settle, Store, Stored, Told, Transfer};

use super::fixture::*;

pub(crate) const ACCOUNT: &str = "workspace:acme/research";
pub(crate) const HELD: &str = "held:workspace:acme/research";
pub(crate) const PROVIDER: &str = "provider:ext.saas-stub";

pub(crate) fn usd(text: &str) -> Money {
    text.parse().unwrap()
}

/// The workspace `acme/research`, without a key.
pub(crate) fn payer() -> Payer {
    Payer {
        organisation: "acme".into(),
        workspace: "research".into(),
        key: None,
        actor: Actor::Agt,
        profile: "profile.agent-dev".into(),
    }
}

pub(crate) fn hold_at(amount: &str, at: Timestamp) -> Books {
    Books { hold: Some(Hold { payer: payer(), amount: usd(amount), at }), ..Books::default() }
}

pub(crate) fn hold(amount: &str) -> Books {
    hold_at(amount, at(0))
}

pub(crate) fn settle_at(upstream: &str, fee: &str, at: Timestamp) -> Books {
    let settlement = Settlement { upstream: usd(upstream), fee: usd(fee) };
    let told = Told { extension: "ext.saas-stub".into(), upstream: usd(upstream), ..Told::default() };
    Books { settle: Some(Settle { payer: payer(), settlement, at, told }), ..Books::default() }
}

pub(crate) fn settle(upstream: &str, fee: &str) -> Books {
    settle_at(upstream, fee, at(60))
}

pub(crate) fn transfer(id: &str, from: &str, to: &str, amount: &str) -> Transfer {
    Transfer {
        id: id.into(),
        kind: if from == WORLD { Kind::Credit } else { Kind::Adjustment },
        from: from.into(),
        to: to.into(),
        amount: usd(amount),
        memo: "a test".into(),
        time: at(0),
    }
}

/// Credits from outside.
pub(crate) async fn fund(store: &dyn Store, account: &str, amount: &str) {
    let id = format!("fund {}", SandboxId::generate());
    store.transfer(&transfer(&id, WORLD, account, amount)).await.unwrap();
}

/// A new sandbox that is ready at once, with these books.
pub(crate) async fn start(store: &dyn Store, record: SandboxRecord, books: Books) -> Result<Stored> {
    let mut wanted = insert(record, State::Ready);
    wanted.books = books;
    match store.insert(wanted).await? {
        Inserted::New(stored) => Ok(stored),
        other => panic!("expected a new sandbox, got {other:?}"),
    }
}

/// A change of nothing but the books.
pub(crate) async fn book(store: &dyn Store, stored: &Stored, books: Books) -> Result<Stored> {
    let mut update = change(stored, &[]);
    update.books = books;
    store.update(update).await
}

/// The end of a sandbox with these books.
pub(crate) async fn end(store: &dyn Store, stored: &Stored, books: Books) -> Result<Stored> {
    let mut update = change(stored, &[State::Destroying, State::Destroyed]);
    update.record.sandbox.destroyed_at = Some(at(60));
    update.books = books;
    store.update(update).await
}

pub(crate) async fn balance(store: &dyn Store, account: &str) -> Money {
    store.account(account).await.unwrap().map_or(Money::ZERO, |account| account.balance)
}

/// What the account has, what is held, what the provider and the house got.
pub(crate) async fn stand(store: &dyn Store) -> [Money; 4] {
    let mut out = [Money::ZERO; 4];
    for (place, account) in [ACCOUNT, HELD, PROVIDER, "fees"].into_iter().enumerate() {
        out[place] = balance(store, account).await;
    }
    out
}

pub(crate) async fn assert_sound(store: &dyn Store) {
    assert_eq!(store.audit().await.unwrap().wrong, Vec::<String>::new());
}

pub(crate) async fn entries(store: &dyn Store, filter: &EntryFilter) -> Vec<Entry> {
    let (mut out, limit) = (Vec::<Entry>::new(), Limit::new(7).unwrap());
    loop {
        let after = out.last().map_or(0, |entry| entry.position);
        let page = store.entries(filter, after, limit).await.unwrap();
        if page.is_empty() {
            return out;
        }
        out.extend(page);
    }
}

/// An error's message with its hint, and that it is the one about money.
pub(crate) fn refusal(error: &Error) -> String {
    assert_eq!(error.kind(), sandboxer_core::ErrorKind::InsufficientCredits, "{error:?}");
    format!("{error}\n{}", error.hint().expect("a hint"))
}

/// A running interval of a sandbox.
pub(crate) fn meter(sandbox_id: SandboxId, name: &str, sequence: u32, started_at: Timestamp) -> Meter {
    Meter {
        sandbox_id,
        meter: name.into(),
        sequence,
        extension: "ext.saas-stub".into(),
        state: Phase::Running,
        what: "2 vCPU at 0.000014 USD/s, reserved".into(),
        price: "ext.saas-stub 2026-01-01".into(),
        started_at,
        ended_at: None,
        alive_at: started_at,
        time: Dur::ZERO,
        cost: Money::ZERO,
        assumed: false,
    }
}

/// The same interval, ended.
pub(crate) fn ended(meter: &Meter, at: Timestamp, cost: &str) -> Meter {
    let millis = at.as_millisecond() - meter.started_at.as_millisecond();
    Meter {
        ended_at: Some(at),
        alive_at: at,
        time: Dur::from_millis(millis.try_into().unwrap()),
        cost: usd(cost),
        ..meter.clone()
    }
}

pub(crate) fn meters(meters: &[Meter]) -> Books {
    Books { meters: meters.to_vec(), ..Books::default() }
}
