//! An engine with a price of one cent a second while it runs and a tenth of that while it is paused.

use sandboxer_core::ledger::{Account, Kind};
use sandboxer_core::request::CreateRequest;
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::{Dur, Money, Result};
use sandboxer_engine::{Caller, CreateOptions, Engine};
use sandboxer_store::Transfer;
use sandboxer_testkit::Workshop;

pub(crate) const ACCOUNT: &str = "workspace:default/default";

/// The canary has half a processor: 0.01 USD a second, 0.001 while it is paused.
pub(crate) const PRICE: &str = "
extension: ext.native
currency: USD
as_of: 2026-01-01
source: the test
basis: metered
bundled: [memory]
rates:
  - { meter: vcpu, amount: 0.02, per: second, unit: vcpu, states: [running] }
  - { meter: vcpu, amount: 0.002, per: second, unit: vcpu, states: [paused] }
";

pub(crate) fn me() -> Caller {
    Caller::local_admin()
}

pub(crate) fn money(text: &str) -> Money {
    text.parse().unwrap()
}

pub(crate) async fn workshop() -> Workshop {
    let workshop = Workshop::priced(PRICE).await.unwrap();
    workshop.extension.script(|script| script.checkpoints = true);
    workshop
}

pub(crate) async fn pay_in(workshop: &Workshop, amount: &str) {
    let transfer = Transfer {
        id: format!("paid in {}", sandboxer_core::EventId::generate()),
        kind: Kind::Credit,
        from: sandboxer_core::ledger::WORLD.into(),
        to: ACCOUNT.into(),
        amount: money(amount),
        memo: String::new(),
        time: workshop.engine.now(),
    };
    workshop.store.transfer(&transfer).await.unwrap();
}

pub(crate) async fn account(workshop: &Workshop) -> Account {
    workshop.store.account(ACCOUNT).await.unwrap().unwrap()
}

pub(crate) async fn create(engine: &Engine, ttl: u64) -> Result<Sandbox> {
    let request = CreateRequest { ttl: Some(Dur::from_secs(ttl)), ..CreateRequest::default() };
    Ok(engine.create(&me(), request, CreateOptions::default()).await?.sandbox)
}

/// Whatever happened, the books are right.
pub(crate) async fn audit(workshop: &Workshop) {
    let audit = workshop.store.audit().await.unwrap();
    assert!(audit.wrong.is_empty(), "{:#?}", audit.wrong);
}
