//! The bill of one sandbox: what is held for it, which interval runs, what the ended ones cost.
//!
//! It is part of the sandbox's record and changes with it, in the same transaction: whoever loses the race for the row
//! has charged nothing.

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::duration::Dur;
use crate::error::Result;
use crate::extension::Usage;
use crate::id::SandboxId;
use crate::ledger::{Meter, Payer};
use crate::money::Money;
use crate::tariff::{Item, MINIMUM, Phase, ProviderKey, Quote, Tariff, Terms, sum};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bill {
    pub payer: Payer,
    pub terms: Terms,
    /// Of the interval that runs, or of the next one.
    pub tariff: Tariff,
    /// What is set aside for it now.
    pub held: Money,
    /// Of the newest interval; they count from 1.
    #[serde(default)]
    pub sequence: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<Open>,
    /// What the backend had counted when the newest interval ended: no microsecond is billed twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<u64>,
    /// Where the newest ended interval ended: none begins before it, whatever the clock says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// What the ended intervals cost, one item for each meter, state and price.
    #[serde(default)]
    pub items: Vec<Item>,
    /// Nothing is held any more and nothing will be charged.
    #[serde(default)]
    pub settled: bool,
    /// Which key of the workspace's own it was made with, as a fingerprint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_key: Option<String>,
}

/// The interval that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    pub phase: Phase,
    pub since: Timestamp,
    /// What the backend had counted when it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_usec: Option<u64>,
}

/// How a hold ends: what goes to the provider, what stays here; everything else goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settlement {
    pub upstream: Money,
    pub fee: Money,
}

/// What a sandbox cost, told at its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Cost {
    /// What was held.
    pub quoted: Money,
    /// What was charged.
    pub charged: Money,
    /// Charged less quoted: never above zero.
    pub difference: Money,
    /// What the backend asks for the time. With a key of the workspace's own the provider bills it to the workspace.
    pub upstream: Money,
    pub fee: Money,
    #[serde(default)]
    pub provider_key: ProviderKey,
    /// What it cost above the hold, which nobody is charged.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub absorbed: Money,
    pub items: Vec<Item>,
}

fn is_zero(amount: &Money) -> bool {
    *amount == Money::ZERO
}

impl Bill {
    /// A bill with nothing on it yet. Absent where nothing will ever be charged or metered; with a key of the workspace's
    /// own there always is one, since it says whose account the sandbox is in.
    pub fn new(payer: Payer, terms: Terms, tariff: Tariff, quote: &Quote) -> Option<Self> {
        let is_free = tariff.lines.is_empty() && tariff.minimum == Money::ZERO;
        (!is_free || terms.provider_key == ProviderKey::Own).then(|| Self {
            payer,
            terms,
            tariff,
            held: quote.amount,
            sequence: 0,
            open: None,
            counted: None,
            ended: None,
            items: Vec::new(),
            settled: false,
            own_key: None,
        })
    }

    /// Begins an interval at the tariff that applies from now on. Whatever ran before must have been stopped.
    pub fn start(
        &mut self,
        sandbox: SandboxId,
        phase: Phase,
        now: Timestamp,
        cpu_usec: Option<u64>,
    ) -> Result<Vec<Meter>> {
        let now = self.ended.map_or(now, |ended| ended.max(now));
        self.sequence += 1;
        self.open = Some(Open { phase, since: now, cpu_usec: cpu_usec.max(self.counted) });
        let items = self.tariff.interval(phase, Dur::ZERO, None, self.sequence == 1)?;
        Ok(items.into_iter().map(|item| self.meter(sandbox, item, now, None, now)).collect())
    }

    /// Ends the interval that runs, if one does; another one may follow. A clock that went back ends it where it began.
    pub fn stop(&mut self, sandbox: SandboxId, at: Timestamp, used: Option<&Usage>) -> Result<Vec<Meter>> {
        self.end(sandbox, at, used, false)
    }

    /// Ends the last interval: what all of them are short of the minimum is a line of it.
    pub fn finish(&mut self, sandbox: SandboxId, at: Timestamp, used: Option<&Usage>) -> Result<Vec<Meter>> {
        self.end(sandbox, at, used, true)
    }

    fn end(
        &mut self,
        sandbox: SandboxId,
        at: Timestamp,
        used: Option<&Usage>,
        is_last: bool,
    ) -> Result<Vec<Meter>> {
        let Some(open) = self.open.take() else { return Ok(Vec::new()) };
        let end = at.max(open.since);
        self.ended = Some(end);
        self.counted = used.and_then(|used| used.cpu_usec).max(self.counted);
        let used = used.map(|used| Usage {
            cpu_usec: used.cpu_usec.map(|now| now.saturating_sub(open.cpu_usec.unwrap_or_default())),
            ..used.clone()
        });
        let time = between(open.since, end);
        let mut items = self.tariff.interval(open.phase, time, used.as_ref(), self.sequence == 1)?;
        for item in &items {
            self.add(item)?;
        }
        if is_last {
            items.extend(self.add_up_to_minimum()?);
        }
        Ok(items.into_iter().map(|item| self.meter(sandbox, item, open.since, Some(end), end)).collect())
    }

    /// What must be held so that it can live until then: the ended intervals, the running one, and what is to come.
    pub fn needed(&self, until: Timestamp, now: Timestamp) -> Result<Money> {
        let since = self.open.as_ref().map_or(now, |open| open.since);
        let is_first = self.sequence <= 1;
        let phase = self.open.as_ref().map_or(Phase::Running, |open| open.phase);
        // A paused sandbox may be resumed at any moment: it needs what a running one does.
        let coming = self.tariff.interval(Phase::Running, between(since, until), None, is_first)?;
        let waiting = match phase {
            Phase::Running => Money::ZERO,
            Phase::Paused => sum(self
                .tariff
                .interval(phase, between(since, until), None, false)?
                .iter()
                .map(|item| item.cost))?,
        };
        let coming_sum = sum(coming.iter().map(|item| item.cost))?.max(waiting);
        let slack = Money::from_nanos(coming.len() as i128);
        let upstream = self.used()?.checked_add(coming_sum)?.checked_add(slack)?.max(self.tariff.minimum);
        self.terms.payable(upstream, self.terms.fee(upstream)?)
    }

    /// The end: what is charged, never more than what is held. The bill is closed by it.
    pub fn settle(&mut self) -> Result<(Settlement, Cost)> {
        if self.sequence > 0 {
            self.add_up_to_minimum()?;
        }
        let upstream = self.spent()?;
        let fee = self.terms.fee(upstream)?;
        let payable = self.terms.payable(upstream, fee)?;
        let charged = payable.min(self.held);
        let billed_upstream = match self.terms.provider_key {
            ProviderKey::Platform => upstream.min(charged),
            ProviderKey::Own => Money::ZERO,
        };
        let billed_fee = Money::from_nanos(charged.nanos() - billed_upstream.nanos());
        let cost = Cost {
            quoted: self.held,
            charged,
            difference: Money::from_nanos(charged.nanos() - self.held.nanos()),
            upstream,
            fee,
            provider_key: self.terms.provider_key,
            absorbed: Money::from_nanos(payable.nanos() - charged.nanos()),
            items: self.items.clone(),
        };
        self.settled = true;
        self.held = Money::ZERO;
        self.open = None;
        Ok((Settlement { upstream: billed_upstream, fee: billed_fee }, cost))
    }

    fn spent(&self) -> Result<Money> {
        sum(self.items.iter().map(|item| item.cost))
    }

    /// Without what only makes it come to the minimum.
    fn used(&self) -> Result<Money> {
        sum(self.items.iter().filter(|item| item.meter != MINIMUM).map(|item| item.cost))
    }

    /// The line after which all of them come to the minimum, if it is more than what was used.
    fn add_up_to_minimum(&mut self) -> Result<Option<Item>> {
        let missing = self.used()?.max(self.tariff.minimum).nanos() - self.spent()?.nanos();
        if missing == 0 {
            return Ok(None);
        }
        // Below zero for one that began when the minimum was asked for every interval.
        let item = self.tariff.up_to_minimum(Money::from_nanos(missing));
        self.add(&item)?;
        self.items.retain(|item| item.meter != MINIMUM || item.cost != Money::ZERO);
        Ok(Some(item))
    }

    fn add(&mut self, item: &Item) -> Result<()> {
        let same = |other: &&mut Item| {
            (&other.meter, other.state, &other.what, other.assumed)
                == (&item.meter, item.state, &item.what, item.assumed)
        };
        match self.items.iter_mut().find(same) {
            Some(known) => {
                known.cost = known.cost.checked_add(item.cost)?;
                known.time = Dur::from_millis(known.time.as_millis().saturating_add(item.time.as_millis()));
            }
            None => self.items.push(item.clone()),
        }
        Ok(())
    }

    fn meter(
        &self,
        sandbox_id: SandboxId,
        item: Item,
        started_at: Timestamp,
        ended_at: Option<Timestamp>,
        alive_at: Timestamp,
    ) -> Meter {
        Meter {
            sandbox_id,
            meter: item.meter,
            sequence: self.sequence,
            extension: self.tariff.extension.clone(),
            state: item.state,
            what: item.what,
            price: self.tariff.price.clone(),
            started_at,
            ended_at,
            alive_at,
            time: item.time,
            cost: if ended_at.is_some() { item.cost } else { Money::ZERO },
            assumed: item.assumed && ended_at.is_some(),
        }
    }
}

/// The time between two moments; none if the clock went back.
fn between(start: Timestamp, end: Timestamp) -> Dur {
    Dur::from_millis(u64::try_from(end.as_millisecond() - start.as_millisecond()).unwrap_or_default())
}
