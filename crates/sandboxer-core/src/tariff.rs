//! What one sandbox costs at one backend: the lines of a price, applied to its resources and frozen.
//!
//! Every amount is exact: quantities, rates and times are integers, multiplied first and divided once.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::duration::Dur;
use crate::error::{Error, ErrorKind, Result};
use crate::extension::Usage;
use crate::money::Money;

/// The meter of what a provider asks at least, beyond what the other lines come to.
pub const MINIMUM: &str = "minimum";

/// An hour, in the unit of [`Dur`].
const HOUR: Dur = Dur::from_secs(3_600);

/// What a backend asks for one sandbox, at one moment. A later price makes another tariff; this one stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tariff {
    pub extension: String,
    /// Which price this is: `ext.e2b 2026-03-01`.
    pub price: String,
    /// `self-hosted` or `metered`.
    pub basis: String,
    pub lines: Vec<TariffLine>,
    /// The least that one sandbox costs.
    #[serde(default)]
    pub minimum: Money,
    /// Each interval is rounded up to a multiple of this.
    #[serde(default)]
    pub granularity: Dur,
}

/// One meter: so much of something, at a rate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TariffLine {
    /// `vcpu`, `memory`, `disk`, `gpu`, `host`, `create`.
    pub meter: String,
    pub charged: Charged,
    /// In base units: thousandths of a processor, bytes, pieces.
    pub quantity: u64,
    /// Base units that cost nothing.
    #[serde(default)]
    pub free: u64,
    /// Base units in one unit of the rate: 1,000 thousandths, 2³⁰ bytes.
    pub unit_size: u64,
    /// For people: `vCPU`, `GiB`, `GB`, `GPU`, `host`, `sandbox`.
    pub unit: String,
    pub rate: Rate,
    /// While the sandbox runs, while it is paused, or both. A line of kind `once` is due when it starts.
    pub phases: Vec<Phase>,
}

/// Nano-dollars for one unit and a span of time, or for one unit at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    pub amount: Money,
    /// Absent for what is paid once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<Dur>,
}

/// Which quantity counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Charged {
    /// What was asked for, whether it is used or not.
    #[default]
    Reserved,
    /// What was used.
    Active,
    /// Whichever is more.
    MaxReservedUsed,
}

/// What a sandbox does while it is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Running,
    Paused,
}

impl Phase {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
        }
    }
}

/// What the life of a sandbox would cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Quote {
    /// What the caller pays at most, and what is held until the end.
    pub amount: Money,
    /// `self-hosted` or `metered`.
    pub basis: String,
    /// What one hour of it costs the caller, running; without what is paid once.
    #[serde(default)]
    pub per_hour: Money,
    /// What the backend asks. With a key of the workspace's own the provider bills this to the workspace itself.
    #[serde(default)]
    pub upstream: Money,
    /// What the platform adds.
    #[serde(default)]
    pub fee: Money,
    /// Whose key at the provider pays the upstream part.
    #[serde(default)]
    pub provider_key: ProviderKey,
    /// Which price it was made from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub price: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<Item>,
}

/// Whose account at the provider is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKey {
    /// The platform pays the provider and charges the caller.
    #[default]
    Platform,
    /// The workspace pays the provider itself; only the fee is charged here.
    Own,
}

/// One line of a quote or a bill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Item {
    pub meter: String,
    pub state: Phase,
    /// `2 vCPU at 0.000014 USD/s, reserved`.
    pub what: String,
    pub time: Dur,
    pub cost: Money,
    /// The backend did not say what was used, so what was reserved counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub assumed: bool,
}

impl Quote {
    /// Nothing to pay: a backend without a price, or one that costs nothing.
    pub fn self_hosted() -> Self {
        Tariff { basis: "self-hosted".into(), ..Tariff::default() }.free_quote()
    }
}

impl TariffLine {
    /// What this line costs for so long. `used` is what the backend measured in that time, where it says.
    pub fn cost(&self, time: Dur, used: Option<&Usage>) -> Result<(Money, bool)> {
        let quantity = self.quantity.saturating_sub(self.free);
        let per = match self.rate.per {
            None => return Ok((ratio(&[quantity, 1], self.rate.amount, &[self.unit_size])?, false)),
            Some(per) => per.as_millis(),
        };
        let reserved = ratio(&[quantity, time.as_millis()], self.rate.amount, &[self.unit_size, per])?;
        if self.charged == Charged::Reserved {
            return Ok((reserved, false));
        }
        let measured = match self.meter.as_str() {
            // Microseconds of a processor are thousandths of a processor for a millisecond.
            "vcpu" => used.and_then(|used| used.cpu_usec).map(|usec| [usec, 1]),
            "memory" => used.and_then(|used| used.memory_bytes).map(|bytes| [bytes, time.as_millis()]),
            "disk" => used
                .and_then(|used| used.disk_bytes)
                .map(|bytes| [bytes.saturating_sub(self.free), time.as_millis()]),
            _ => None,
        };
        let Some(measured) = measured else { return Ok((reserved, true)) };
        let active = ratio(&measured, self.rate.amount, &[self.unit_size, per])?;
        Ok((if self.charged == Charged::Active { active } else { active.max(reserved) }, false))
    }

    fn is_once(&self) -> bool {
        self.rate.per.is_none()
    }

    /// The line in words.
    pub fn what(&self) -> String {
        let charged = match self.charged {
            Charged::Reserved => "reserved",
            Charged::Active => "used",
            Charged::MaxReservedUsed => "reserved or used, whichever is more",
        };
        let quantity = decimal(self.quantity, self.unit_size);
        let free = match self.free {
            0 => String::new(),
            free => format!(" above {} {}", decimal(free, self.unit_size), self.unit),
        };
        match self.rate.per {
            None => format!("{quantity} {}{free} at {} each", self.unit, self.rate.amount),
            Some(per) => {
                format!("{quantity} {}{free} at {}/{}, {charged}", self.unit, self.rate.amount, short(per))
            }
        }
    }
}

impl Tariff {
    /// The lines that count in this phase, each with its cost. `once` lines count when the sandbox starts.
    pub fn interval(
        &self,
        phase: Phase,
        time: Dur,
        used: Option<&Usage>,
        is_first: bool,
    ) -> Result<Vec<Item>> {
        let time = rounded_up(time, self.granularity);
        let mut out = Vec::new();
        for line in &self.lines {
            if !line.phases.contains(&phase) || (line.is_once() && !is_first) {
                continue;
            }
            let (cost, assumed) = line.cost(time, used)?;
            let time = if line.is_once() { Dur::ZERO } else { time };
            out.push(Item {
                meter: line.meter.clone(),
                state: phase,
                what: line.what(),
                time,
                cost,
                assumed,
            });
        }
        Ok(out)
    }

    /// The line that makes the others come to the minimum.
    pub(crate) fn up_to_minimum(&self, cost: Money) -> Item {
        Item {
            meter: MINIMUM.into(),
            state: Phase::Running,
            what: format!("up to the minimum of {}", self.minimum),
            time: Dur::ZERO,
            cost,
            assumed: false,
        }
    }

    /// What a sandbox that runs for so long costs at most, and whose money that is.
    pub fn quote(&self, time: Dur, terms: Terms) -> Result<Quote> {
        let mut items = self.interval(Phase::Running, time, None, true)?;
        let hour = self.interval(Phase::Running, HOUR, None, false)?;
        // What is quoted may be a nano-dollar a line too much and never too little.
        let slack = Money::from_nanos(if items.is_empty() { 0 } else { items.len() as i128 });
        let exact = sum(items.iter().map(|item| item.cost))?;
        let upstream = if exact == Money::ZERO { exact } else { exact.checked_add(slack)? };
        if upstream < self.minimum {
            items.push(self.up_to_minimum(Money::from_nanos(self.minimum.nanos() - exact.nanos())));
        }
        let upstream = upstream.max(self.minimum);
        let fee = terms.fee(upstream)?;
        let hourly = sum(hour.iter().map(|item| item.cost))?;
        Ok(Quote {
            amount: terms.payable(upstream, fee)?,
            basis: self.basis.clone(),
            per_hour: terms.payable(hourly, terms.fee(hourly)?)?,
            upstream,
            fee,
            provider_key: terms.provider_key,
            price: self.price.clone(),
            items,
        })
    }

    fn free_quote(&self) -> Quote {
        Quote {
            amount: Money::ZERO,
            basis: self.basis.clone(),
            per_hour: Money::ZERO,
            upstream: Money::ZERO,
            fee: Money::ZERO,
            provider_key: ProviderKey::Platform,
            price: self.price.clone(),
            items: Vec::new(),
        }
    }
}

/// Who pays the provider, and what the platform adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    #[serde(default)]
    pub provider_key: ProviderKey,
    /// Hundredths of a per cent of the upstream cost.
    #[serde(default)]
    pub fee_basis_points: u32,
}

impl Terms {
    pub fn fee(&self, upstream: Money) -> Result<Money> {
        ratio(&[u64::from(self.fee_basis_points), 1], upstream, &[10_000])
    }

    /// What is charged here.
    pub fn payable(&self, upstream: Money, fee: Money) -> Result<Money> {
        match self.provider_key {
            ProviderKey::Platform => upstream.checked_add(fee),
            ProviderKey::Own => Ok(fee),
        }
    }
}

pub(crate) fn sum(amounts: impl IntoIterator<Item = Money>) -> Result<Money> {
    amounts.into_iter().try_fold(Money::ZERO, Money::checked_add)
}

/// `amount` times the factors, divided by the divisors, rounded down.
fn ratio(factors: &[u64], amount: Money, divisors: &[u64]) -> Result<Money> {
    let overflow = || Error::new(ErrorKind::InvalidInput, "the cost leaves the accepted range");
    let product = factors.iter().try_fold(amount.nanos(), |product, factor| {
        product.checked_mul(i128::from(*factor)).ok_or_else(overflow)
    })?;
    let divisor: i128 = divisors.iter().map(|divisor| i128::from(*divisor)).product();
    if divisor == 0 {
        return Err(Error::new(ErrorKind::InvalidInput, "a rate per nothing"));
    }
    Money::from_nanos(product.div_euclid(divisor)).checked_add(Money::ZERO)
}

fn rounded_up(time: Dur, step: Dur) -> Dur {
    match step.as_millis() {
        0 | 1 => time,
        step => Dur::from_millis(time.as_millis().div_ceil(step).saturating_mul(step)),
    }
}

/// A quantity in the rate's unit, with at most three decimals.
fn decimal(quantity: u64, unit_size: u64) -> String {
    let thousandths = u128::from(quantity) * 1_000 / u128::from(unit_size.max(1));
    let (whole, rest) = (thousandths / 1_000, thousandths % 1_000);
    if rest == 0 {
        return whole.to_string();
    }
    format!("{whole}.{rest:03}").trim_end_matches('0').to_owned()
}

/// `s` for a second, `h` for an hour, otherwise the duration.
fn short(per: Dur) -> String {
    let text = per.to_string();
    text.strip_prefix('1').filter(|rest| rest.chars().all(char::is_alphabetic)).unwrap_or(&text).to_owned()
}
