//! What a sandbox's life does to the books. Every change goes with the row's own change, in one transaction: whoever
//! loses the race for the row has moved no money.

mod holds;
mod meters;

use sandboxer_core::Result;
use sandboxer_core::bill::Bill;
use sandboxer_core::event::NewEvent;
use sandboxer_core::extension::Usage;
use sandboxer_core::ledger::Payer;
use sandboxer_core::profile::Resources;
use sandboxer_core::sandbox::{Quote, SandboxRecord};
use sandboxer_core::tariff::{ProviderKey, Tariff, Terms};
use sandboxer_store::{Books, Settle, Told};
use serde_json::json;

use crate::{Caller, Engine};

/// What goes into an update beside the record.
#[derive(Default)]
pub(crate) struct Money {
    pub(crate) books: Books,
    pub(crate) facts: Vec<NewEvent>,
}

impl Engine {
    /// What a sandbox with these resources costs there now.
    pub(crate) fn tariff(&self, extension: &str, host: &str, resources: &Resources) -> Result<Tariff> {
        let capability = self.inner.registry.get(extension)?.describe().capability;
        self.prices().book().tariff(extension, host, resources, capability.self_hosted, self.now())
    }

    /// Whose key at the provider is used, and what the platform adds.
    pub(crate) async fn terms(&self, caller: &Caller, extension: &str) -> Result<Terms> {
        let seat = &caller.seat;
        let own = self.inner.store.own_key(&seat.organisation, &seat.workspace, extension).await?;
        Ok(own.map_or_else(Terms::default, |own| Terms {
            provider_key: ProviderKey::Own,
            fee_basis_points: own.fee_basis_points,
        }))
    }

    /// The bill of a sandbox that is about to be made, with its quote. No bill where nothing is charged or metered.
    pub(crate) async fn open_bill(
        &self,
        caller: &Caller,
        record: &SandboxRecord,
    ) -> Result<(Option<Bill>, Quote)> {
        let sandbox = &record.sandbox;
        let tariff = self.tariff(&sandbox.extension, &sandbox.host, &record.spec.resources)?;
        let is_free = tariff.lines.is_empty() && tariff.minimum == sandboxer_core::Money::ZERO;
        // A machine of one's own has no accounts.
        if is_free && self.inner.registry.get(&sandbox.extension)?.describe().capability.self_hosted {
            return Ok((None, tariff.quote(sandbox.ttl, Terms::default())?));
        }
        let terms = self.terms(caller, &sandbox.extension).await?;
        let quote = tariff.quote(sandbox.ttl, terms)?;
        let profile = sandbox.profile.split('@').next().unwrap_or_default().to_owned();
        let payer = Payer {
            organisation: caller.seat.organisation.clone(),
            workspace: caller.seat.workspace.clone(),
            key: caller.key_text(),
            actor: sandbox.consumer.actor,
            profile,
        };
        let mut bill = Bill::new(payer, terms, tariff, &quote);
        if let Some(bill) = bill.as_mut().filter(|bill| bill.terms.provider_key == ProviderKey::Own) {
            // One that is not there is told by the create itself, before it makes anything.
            let key = self.key_of(&caller.seat, &sandbox.extension).await.ok();
            bill.own_key = key.map(|key| key.fingerprint());
        }
        Ok((bill, quote))
    }

    /// Another offer, another price: the record gets its tariff and quote, and the hold follows. Nothing ran yet.
    pub(crate) async fn rebill(&self, record: &mut SandboxRecord) -> Result<Money> {
        let before = record.bill.take();
        let caller = match &before {
            Some(bill) => payer_as_caller(&bill.payer),
            None => self.payer_of(record).await?,
        };
        let (bill, quote) = self.open_bill(&caller, record).await?;
        record.sandbox.quote = quote;
        // A free offer after a dear one gives back what was held, by a hold of nothing.
        record.bill = bill.or_else(|| {
            before.map(|mut bill| {
                let extension = record.sandbox.extension.clone();
                bill.tariff = Tariff { extension, basis: "self-hosted".into(), ..Tariff::default() };
                bill.terms = Terms::default();
                bill.own_key = None;
                bill.held = sandboxer_core::Money::ZERO;
                bill
            })
        });
        Ok(self.hold_for(record))
    }

    /// Whoever asked for a sandbox that was free until now.
    pub(crate) async fn payer_of(&self, record: &SandboxRecord) -> Result<Caller> {
        let mut caller = Caller { actor: record.sandbox.consumer.actor, ..Caller::local_admin() };
        if let Some(text) = &record.owner_key {
            let id = text.parse()?;
            caller.key = Some(id);
            if let Some(key) = self.inner.store.key_list().await?.into_iter().find(|key| key.key_id == id) {
                caller.seat.organisation = key.organisation;
                caller.seat.workspace = key.workspace;
            }
        }
        Ok(caller)
    }

    /// The end: the last interval is closed, what was used is posted, and the rest of the hold goes back. Once.
    pub(crate) async fn settle_bill(
        &self,
        record: &mut SandboxRecord,
        at: jiff::Timestamp,
        used: Option<&Usage>,
    ) -> Result<Money> {
        if record.bill.as_ref().is_none_or(|bill| bill.settled) {
            return Ok(Money::default());
        }
        let mut money = self.stop_meters(record, at, used, Bill::finish)?;
        let now = self.now();
        let Some(bill) = record.bill.as_mut() else { return Ok(money) };
        let (settlement, cost) = bill.settle()?;
        let told = Told {
            extension: bill.tariff.extension.clone(),
            profile: bill.payer.profile.clone(),
            provider_key: cost.provider_key,
            upstream: cost.upstream,
        };
        money.books.settle = Some(Settle { payer: bill.payer.clone(), settlement, at: now, told });
        money.facts.push(NewEvent::fact("credits.settled", now, json!({ "cost": cost })));
        record.sandbox.cost = Some(cost);
        Ok(money)
    }

    pub(super) fn refresh_tariff(&self, record: &mut SandboxRecord) {
        let sandbox = &record.sandbox;
        let current = self.tariff(&sandbox.extension, &sandbox.host, &record.spec.resources);
        match (current, record.bill.as_mut()) {
            (Ok(tariff), Some(bill)) => bill.tariff = tariff,
            // A price that is not there any more: what was agreed goes on.
            (Err(error), _) => {
                tracing::warn!(error = ?error, "a price could not be read; the old one applies")
            }
            (Ok(_), None) => {}
        }
    }
}

pub(crate) fn payer_as_caller(payer: &Payer) -> Caller {
    Caller {
        actor: payer.actor,
        key: payer.key.as_deref().and_then(|key| key.parse().ok()),
        seat: sandboxer_core::ledger::Seat {
            organisation: payer.organisation.clone(),
            workspace: payer.workspace.clone(),
        },
    }
}
