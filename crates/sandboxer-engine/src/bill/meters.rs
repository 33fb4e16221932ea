//! Which time is charged: the intervals of a life, and when it was last known to go on.

use jiff::Timestamp;
use sandboxer_core::bill::Bill;
use sandboxer_core::event::NewEvent;
use sandboxer_core::extension::{Life, Usage};
use sandboxer_core::ledger::Meter;
use sandboxer_core::sandbox::{SandboxRecord, reason};
use sandboxer_core::tariff::{Charged, Phase};
use sandboxer_core::{Dur, Result, SandboxId};
use sandboxer_store::{Books, Stored};

use super::Money;
use crate::Engine;

/// How long a backend may take to say what was used, before the last known figure counts.
const PATIENCE: Dur = Dur::from_secs(3);
/// Between two signs of life of the same sandbox that are written down.
const SIGN_EVERY: Dur = Dur::from_secs(5);

/// [`Bill::stop`] or [`Bill::finish`].
type Stop = fn(&mut Bill, SandboxId, Timestamp, Option<&Usage>) -> Result<Vec<Meter>>;

impl Engine {
    /// It is ready since then: what is held is what its place costs, and the first interval begins.
    pub(crate) async fn begin_charging(&self, record: &mut SandboxRecord, since: Timestamp) -> Result<Money> {
        let mut money = self.hold_as_quoted(record).await?;
        let started = self.start_meters(record, Phase::Running, since, None)?;
        money.books.meters = started.books.meters;
        Ok(money)
    }

    /// An interval begins where what was before it ended: looking at the clock again would leave a hole.
    fn start_meters(
        &self,
        record: &mut SandboxRecord,
        phase: Phase,
        at: Timestamp,
        cpu: Option<u64>,
    ) -> Result<Money> {
        let id = record.id();
        let Some(bill) = record.bill.as_mut().filter(|bill| !bill.settled) else {
            return Ok(Money::default());
        };
        let meters = bill.start(id, phase, at, cpu)?;
        Ok(Money { books: Books { meters, ..Books::default() }, facts: Vec::new() })
    }

    /// From one phase to the other. The new interval has the price of now.
    pub(crate) async fn switch_meters(&self, record: &mut SandboxRecord, phase: Phase) -> Result<Money> {
        if record.bill.as_ref().is_none_or(|bill| bill.settled) {
            return Ok(Money::default());
        }
        let used = self.used(record).await;
        // One moment for both: no time is missing between them.
        let now = self.now();
        let mut money = self.stop_meters(record, now, used.as_ref(), Bill::stop)?;
        self.refresh_tariff(record);
        let cpu = used.and_then(|used| used.cpu_usec);
        let started = self.start_meters(record, phase, now, cpu)?;
        money.books.meters.extend(started.books.meters);
        Ok(money)
    }

    /// The running interval ends there, and with [`Bill::finish`] all of them.
    pub(crate) fn stop_meters(
        &self,
        record: &mut SandboxRecord,
        at: Timestamp,
        used: Option<&Usage>,
        stop: Stop,
    ) -> Result<Money> {
        let id = record.id();
        let Some(bill) = record.bill.as_mut() else { return Ok(Money::default()) };
        let meters = stop(bill, id, at, used)?;
        let facts = meters.iter().map(|meter| self.recorded(meter)).collect();
        Ok(Money { books: Books { meters, ..Books::default() }, facts })
    }

    /// What the backend says was used, where a meter asks for it; otherwise what it said last.
    pub(crate) async fn used(&self, record: &SandboxRecord) -> Option<Usage> {
        let bill = record.bill.as_ref().filter(|bill| bill.open.is_some())?;
        if bill.tariff.lines.iter().all(|line| line.charged == Charged::Reserved) {
            return None;
        }
        let extension = self.extension_of(record).await.ok()?;
        let handle = record.handle.as_ref()?;
        match tokio::time::timeout(PATIENCE.as_std(), extension.status(handle)).await {
            Ok(Ok(status)) if status.usage.is_some() => status.usage,
            _ => self.inner.store.last_alive(record.id()).await.ok().flatten()?.1,
        }
    }

    /// Until when the time of a sandbox is charged that ends now for this reason. Its backend's own word comes first,
    /// within what we know ourselves: not before it was last seen alive, not after its deadline and not after now. A
    /// backend that only knows that it is over leaves the last time that it was seen alive, and at a deadline the deadline.
    pub(crate) async fn end_of_charge(&self, record: &SandboxRecord, why: &str) -> Result<Timestamp> {
        let latest = self.now().min(record.sandbox.expires_at);
        if record.bill.as_ref().is_none_or(|bill| bill.open.is_none()) {
            return Ok(latest);
        }
        let earliest = self.last_alive(record).await?.min(latest);
        let found_dead = matches!(why, reason::LOST | reason::IDLE);
        Ok(match self.life_of(record).await {
            Some(Life::Ended { at: Some(at) }) => at.clamp(earliest, latest),
            Some(Life::Ended { at: None }) if why != reason::TTL => earliest,
            _ if found_dead => earliest,
            _ => latest,
        })
    }

    /// What the backend says of its life; nothing where it does not say anything soon.
    async fn life_of(&self, record: &SandboxRecord) -> Option<Life> {
        let handle = record.handle.as_ref()?;
        tokio::time::timeout(PATIENCE.as_std(), self.life(record, handle)).await.ok()?.ok()
    }

    /// When the backend was last known to live: the end of what is charged when nobody knows when it ended.
    async fn last_alive(&self, record: &SandboxRecord) -> Result<Timestamp> {
        let since = record.bill.as_ref().and_then(|bill| bill.open.as_ref()).map(|open| open.since);
        let since = since.unwrap_or(record.sandbox.created_at);
        let seen = self.inner.store.last_alive(record.id()).await?;
        Ok(seen.map_or(since, |(at, _)| at.max(since)).min(self.now().max(since)))
    }

    /// Something was done inside, so it was alive; nobody waits for that to be written down.
    pub(crate) fn note_used(&self, stored: &Stored, asked_at: Timestamp) {
        if is_metered(&stored.record) {
            let (engine, stored) = (self.clone(), stored.clone());
            self.inner.memory.tasks.spawn(async move { engine.note_alive(&stored, asked_at).await });
        }
    }

    /// Writes down that the backend of a sandbox with a bill was seen alive when it was asked, every now and then.
    pub(crate) async fn note_alive(&self, stored: &Stored, asked_at: Timestamp) {
        let record = &stored.record;
        let id = record.id();
        if !is_metered(record) || !self.inner.signs.is_due(id, asked_at, SIGN_EVERY) {
            return;
        }
        let used = self.used(record).await;
        if let Err(error) = self.inner.store.seen_alive(id, asked_at, used.as_ref()).await {
            tracing::warn!(error = ?error, sandbox = %id, "a sign of life could not be recorded");
        }
    }

    fn recorded(&self, meter: &Meter) -> NewEvent {
        let data = serde_json::to_value(meter).unwrap_or_default();
        NewEvent::fact("meter.recorded", self.now(), data)
    }
}

/// An interval runs.
fn is_metered(record: &SandboxRecord) -> bool {
    record.bill.as_ref().is_some_and(|bill| bill.open.is_some())
}
