//! What a sandbox's life does to the books. Every change goes with the row's own change, in one transaction: whoever
//! loses the race for the row has moved no money.

use sandboxer_core::bill::Bill;
use sandboxer_core::event::NewEvent;
use sandboxer_core::extension::{Credential, Usage};
use sandboxer_core::ledger::{Meter, Payer};
use sandboxer_core::profile::Resources;
use sandboxer_core::sandbox::{Quote, SandboxRecord};
use sandboxer_core::tariff::{Charged, Phase, ProviderKey, Tariff, Terms};
use sandboxer_core::{Dur, Error, ErrorKind, Result};
use sandboxer_store::{Books, Hold, Settle, Stored};
use serde_json::json;

use crate::{Caller, Engine};

/// How long a backend may take to say what was used, before the last known figure counts.
const PATIENCE: Dur = Dur::from_secs(3);
/// Between two signs of life of the same sandbox that are written down.
const SIGN_EVERY: Dur = Dur::from_secs(5);

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
        if tariff.lines.is_empty() && tariff.minimum == sandboxer_core::Money::ZERO {
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
        Ok((Bill::new(payer, terms, tariff, &quote), quote))
    }

    /// Sets aside what the bill says is to be held.
    pub(crate) fn hold_for(&self, record: &SandboxRecord) -> Money {
        let Some(bill) = &record.bill else { return Money::default() };
        let (payer, amount) = (bill.payer.clone(), bill.held);
        let fact = json!({ "held": amount, "extension": bill.tariff.extension, "price": bill.tariff.price });
        Money {
            books: Books { hold: Some(Hold { payer, amount, at: self.now() }), ..Books::default() },
            facts: vec![NewEvent::fact("credits.held", self.now(), fact)],
        }
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
                bill.held = sandboxer_core::Money::ZERO;
                bill
            })
        });
        Ok(self.hold_for(record))
    }

    /// What the dearer of two places costs, while it is open which of them it will be. When it is known, the hold follows.
    pub(crate) fn hold_for_either(&self, record: &mut SandboxRecord, other: Option<&Bill>) -> Money {
        let Some(other) = other else { return Money::default() };
        match &mut record.bill {
            Some(bill) if bill.held >= other.held => return Money::default(),
            Some(bill) => bill.held = other.held,
            None => record.bill = Some(other.clone()),
        }
        self.hold_for(record)
    }

    /// Whether what is held is what the quote of the record's own place says; it is not after a choice of two.
    pub(crate) async fn hold_as_quoted(&self, record: &mut SandboxRecord) -> Result<Money> {
        match &record.bill {
            Some(bill) if bill.held != record.sandbox.quote.amount => self.rebill(record).await,
            _ => Ok(Money::default()),
        }
    }

    /// Says before anything is ended whether its successor can be paid with what it gives back.
    pub(crate) async fn require_credits(
        &self,
        caller: &Caller,
        old: &SandboxRecord,
        quote: &Quote,
    ) -> Result<()> {
        let given_back = old.bill.as_ref().map_or(0, |bill| bill.held.nanos());
        if quote.amount.nanos() <= given_back {
            return Ok(());
        }
        let payer = Payer {
            organisation: caller.seat.organisation.clone(),
            workspace: caller.seat.workspace.clone(),
            key: caller.key_text(),
            actor: caller.actor,
            profile: String::new(),
        };
        let mut free = 0;
        for name in payer.accounts() {
            if let Some(account) = self.inner.store.account(&name).await? {
                free = account.balance.nanos() + account.overdraft.nanos();
                break;
            }
        }
        if quote.amount.nanos() <= given_back + free {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InsufficientCredits,
            format!("a new one needs {} to be held, and that is not there", quote.amount),
        )
        .with_hint("the old one is still there; `sandboxer credits show` tells the balance"))
    }

    /// Whoever asked for a sandbox that was free until now.
    async fn payer_of(&self, record: &SandboxRecord) -> Result<Caller> {
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

    /// The workspace's own key at the provider, where the bill says that it is used. Without it nothing is provisioned:
    /// the platform's key would be charged for what the workspace wants to pay itself.
    pub(crate) async fn credential(&self, record: &SandboxRecord) -> Result<Option<Credential>> {
        let Some(bill) = record.bill.as_ref().filter(|bill| bill.terms.provider_key == ProviderKey::Own)
        else {
            return Ok(None);
        };
        let (payer, extension) = (&bill.payer, &record.sandbox.extension);
        let own = self.inner.store.own_key(&payer.organisation, &payer.workspace, extension).await?;
        let secret = match &own {
            Some(own) => self.vault()?.get(&own.secret)?,
            None => None,
        };
        let secret = secret.ok_or_else(|| {
            Error::new(
                ErrorKind::Refused,
                format!("the key of workspace {} for {extension} is not there any more", payer.workspace),
            )
            .with_hint("`sandboxer credits provider-keys set` stores it again, `… remove` goes back to the platform's")
            .without_effect()
        })?;
        Ok(Some(Credential::new(secret.expose())))
    }

    /// It is ready: what is held is what its place costs, and the first interval begins.
    pub(crate) async fn begin_charging(&self, record: &mut SandboxRecord) -> Result<Money> {
        let mut money = self.hold_as_quoted(record).await?;
        let started = self.start_meters(record, Phase::Running, None)?;
        money.books.meters = started.books.meters;
        Ok(money)
    }

    /// An interval begins.
    pub(crate) fn start_meters(
        &self,
        record: &mut SandboxRecord,
        phase: Phase,
        cpu: Option<u64>,
    ) -> Result<Money> {
        let (id, now) = (record.id(), self.now());
        let Some(bill) = record.bill.as_mut().filter(|bill| !bill.settled) else {
            return Ok(Money::default());
        };
        let meters = bill.start(id, phase, now, cpu)?;
        Ok(Money { books: Books { meters, ..Books::default() }, facts: Vec::new() })
    }

    /// From one phase to the other. The new interval has the price of now.
    pub(crate) async fn switch_meters(&self, record: &mut SandboxRecord, phase: Phase) -> Result<Money> {
        if record.bill.as_ref().is_none_or(|bill| bill.settled) {
            return Ok(Money::default());
        }
        let used = self.used(record).await;
        let now = self.now();
        let mut money = self.stop_meters(record, now, used.as_ref())?;
        self.refresh_tariff(record);
        let cpu = used.and_then(|used| used.cpu_usec);
        let started = self.start_meters(record, phase, cpu)?;
        money.books.meters.extend(started.books.meters);
        Ok(money)
    }

    /// What a paused sandbox needs to go on at the price of now, set aside before it does.
    pub(crate) fn hold_for_resume(&self, record: &mut SandboxRecord) -> Result<Money> {
        let mut now = record.clone();
        self.refresh_tariff(&mut now);
        let money = self.raise_hold(&mut now, record.sandbox.expires_at)?;
        // The interval that runs keeps its price; only what is held changes.
        if let (Some(bill), Some(raised)) = (record.bill.as_mut(), now.bill) {
            bill.held = raised.held;
        }
        record.sandbox.quote = now.sandbox.quote;
        Ok(money)
    }

    /// Gives back what is held beyond a life until then: a longer one was planned and did not come about.
    pub(crate) fn lower_hold(&self, record: &mut SandboxRecord, until: jiff::Timestamp) -> Result<Money> {
        let now = self.now();
        let Some(bill) = record.bill.as_mut().filter(|bill| !bill.settled) else {
            return Ok(Money::default());
        };
        let needed = bill.needed(until, now)?;
        if needed >= bill.held {
            return Ok(Money::default());
        }
        bill.held = needed;
        self.requote(record, until)?;
        Ok(self.hold_for(record))
    }

    /// Makes the hold large enough for a life until then; never smaller.
    pub(crate) fn raise_hold(&self, record: &mut SandboxRecord, until: jiff::Timestamp) -> Result<Money> {
        let now = self.now();
        let Some(bill) = record.bill.as_mut().filter(|bill| !bill.settled) else {
            return Ok(Money::default());
        };
        let needed = bill.needed(until, now)?;
        if needed <= bill.held {
            return Ok(Money::default());
        }
        if let Some(most) = record.sandbox.route.max_cost_total.filter(|most| needed > *most) {
            return Err(Error::new(
                ErrorKind::Refused,
                format!("it would cost up to {needed}, and the route allows {most} in all"),
            )
            .with_hint("extend it by less, or create another one with a higher `--max-cost`"));
        }
        bill.held = needed;
        self.requote(record, until)?;
        Ok(self.hold_for(record))
    }

    /// What the quote says after the hold has changed.
    fn requote(&self, record: &mut SandboxRecord, until: jiff::Timestamp) -> Result<()> {
        let Some(bill) = &record.bill else { return Ok(()) };
        let life = until.as_millisecond() - record.sandbox.created_at.as_millisecond();
        let life = Dur::from_millis(u64::try_from(life).unwrap_or_default());
        let quote = bill.tariff.quote(life, bill.terms)?;
        record.sandbox.quote = Quote { amount: bill.held, ..quote };
        Ok(())
    }

    /// The running interval ends there.
    pub(crate) fn stop_meters(
        &self,
        record: &mut SandboxRecord,
        at: jiff::Timestamp,
        used: Option<&Usage>,
    ) -> Result<Money> {
        let id = record.id();
        let Some(bill) = record.bill.as_mut() else { return Ok(Money::default()) };
        let meters = bill.stop(id, at, used)?;
        let facts = meters.iter().map(|meter| self.recorded(meter)).collect();
        Ok(Money { books: Books { meters, ..Books::default() }, facts })
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
        let mut money = self.stop_meters(record, at, used)?;
        let now = self.now();
        let Some(bill) = record.bill.as_mut() else { return Ok(money) };
        let (settlement, cost) = bill.settle()?;
        let extension = bill.tariff.extension.clone();
        money.books.settle = Some(Settle { extension, settlement, at: now });
        money.facts.push(NewEvent::fact("credits.settled", now, json!({ "cost": cost })));
        record.sandbox.cost = Some(cost);
        Ok(money)
    }

    /// What the backend says was used, where a meter asks for it; otherwise what it said last.
    pub(crate) async fn used(&self, record: &SandboxRecord) -> Option<Usage> {
        let bill = record.bill.as_ref().filter(|bill| bill.open.is_some())?;
        if bill.tariff.lines.iter().all(|line| line.charged == Charged::Reserved) {
            return None;
        }
        let extension = self.inner.registry.get(&record.sandbox.extension).ok()?;
        let handle = record.handle.as_ref()?;
        match tokio::time::timeout(PATIENCE.as_std(), extension.status(handle)).await {
            Ok(Ok(status)) if status.usage.is_some() => status.usage,
            _ => self.inner.store.last_alive(record.id()).await.ok().flatten()?.1,
        }
    }

    /// Whether the backend of a metered sandbox still has it; only a clear no counts.
    pub(crate) async fn seems_alive(&self, record: &SandboxRecord) -> bool {
        let is_metered = record.bill.as_ref().is_some_and(|bill| bill.open.is_some());
        let (true, Some(handle)) = (is_metered, &record.handle) else { return true };
        let Ok(extension) = self.inner.registry.get(&record.sandbox.extension) else { return true };
        !matches!(tokio::time::timeout(PATIENCE.as_std(), extension.is_alive(handle)).await, Ok(Ok(false)))
    }

    /// When the backend was last known to live: the end of what is charged when nobody knows when it ended.
    pub(crate) async fn last_alive(&self, record: &SandboxRecord) -> Result<jiff::Timestamp> {
        let since = record.bill.as_ref().and_then(|bill| bill.open.as_ref()).map(|open| open.since);
        let since = since.unwrap_or(record.sandbox.created_at);
        let seen = self.inner.store.last_alive(record.id()).await?;
        Ok(seen.map_or(since, |(at, _)| at.max(since)).min(self.now().max(since)))
    }

    /// Writes down that the backend of a sandbox with a bill was seen alive, every now and then.
    pub(crate) async fn note_alive(&self, stored: &Stored) {
        let record = &stored.record;
        let is_metered = record.bill.as_ref().is_some_and(|bill| bill.open.is_some());
        let (id, now) = (record.id(), self.now());
        if !is_metered || !self.inner.signs.is_due(id, now, SIGN_EVERY) {
            return;
        }
        let used = self.used(record).await;
        if let Err(error) = self.inner.store.seen_alive(id, now, used.as_ref()).await {
            tracing::warn!(error = ?error, sandbox = %id, "a sign of life could not be recorded");
        }
    }

    fn refresh_tariff(&self, record: &mut SandboxRecord) {
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

    fn recorded(&self, meter: &Meter) -> NewEvent {
        let data = serde_json::to_value(meter).unwrap_or_default();
        NewEvent::fact("meter.recorded", self.now(), data)
    }
}

fn payer_as_caller(payer: &Payer) -> Caller {
    Caller {
        actor: payer.actor,
        key: payer.key.as_deref().and_then(|key| key.parse().ok()),
        seat: sandboxer_core::ledger::Seat {
            organisation: payer.organisation.clone(),
            workspace: payer.workspace.clone(),
        },
    }
}
