//! The answer: every candidate in its order, with what spoke for or against it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::breaker::BreakerState;
use super::refusal::Refusal;
use crate::duration::Dur;
use crate::error::Class;
use crate::money::Money;
use crate::profile::{Constraints, Strategy};
use crate::tariff::{ProviderKey, Quote};

/// One candidate, accepted or refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Offer {
    pub extension: String,
    pub host: String,
    pub accepted: bool,
    /// Why it stands where it stands, or why it is refused.
    pub reason: String,
    /// When it is worth asking again; absent where it is accepted, or where waiting changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub again_at: Option<Timestamp>,
    /// It runs on a machine of the user's own.
    #[serde(default)]
    pub self_hosted: bool,
    /// Absent where no price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<OfferQuote>,
    /// Measured from create to ready; absent where it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<OfferLatency>,
    /// Absent while nothing is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<OfferHealth>,
    /// What the strategy ranked it by: nano-dollars or milliseconds, smaller first; with `weighted` its weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<u64>,
}

impl Offer {
    pub fn refused(extension: &str, host: &str, why: Refusal) -> Self {
        let Refusal { reason, again_at } = why;
        Self { extension: extension.to_owned(), host: host.to_owned(), reason, again_at, ..Self::default() }
    }

    pub fn backend(&self) -> Backend {
        Backend { extension: self.extension.clone(), host: self.host.clone() }
    }

    /// `ext.docker on build1`.
    pub fn name(&self) -> String {
        name(&self.extension, &self.host)
    }
}

/// What an offer costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct OfferQuote {
    /// The whole TTL, at most, as far as it is charged here.
    pub amount: Money,
    pub per_hour: Money,
    /// What the provider bills to the workspace's own key beside the amount; absent where the platform pays it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Money>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_per_hour: Option<Money>,
}

impl OfferQuote {
    /// What is charged here. `hourly` is what an hour costs whoever pays for it.
    pub fn new(quote: &Quote, hourly: Money) -> Self {
        let own = quote.provider_key == ProviderKey::Own;
        let elsewhere = Money::from_nanos(hourly.nanos().saturating_sub(quote.per_hour.nanos()));
        Self {
            amount: quote.amount,
            per_hour: quote.per_hour,
            upstream: own.then_some(quote.upstream),
            upstream_per_hour: own.then_some(elsewhere),
        }
    }

    /// The whole TTL, whoever bills it: what bounds and strategies go by.
    pub fn total(&self) -> Money {
        both(self.amount, self.upstream)
    }

    pub fn total_per_hour(&self) -> Money {
        both(self.per_hour, self.upstream_per_hour)
    }
}

fn both(here: Money, elsewhere: Option<Money>) -> Money {
    Money::from_nanos(here.nanos().saturating_add(elsewhere.unwrap_or_default().nanos()))
}

/// How long creates took there, newer ones counting more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct OfferLatency {
    pub p50: Dur,
    pub p95: Dur,
    pub samples: u32,
}

/// Trouble that a backend had lately.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct OfferHealth {
    pub state: BreakerState,
    pub class: Class,
    /// Until when nothing is sent there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
}

impl Backend {
    /// `ext.docker on build1`.
    pub fn name(&self) -> String {
        name(&self.extension, &self.host)
    }
}

/// Where a sandbox can be: an extension and a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Backend {
    pub extension: String,
    pub host: String,
}

/// The decision with every candidate, kept with the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RouteDecision {
    pub strategy: Strategy,
    /// The request itself named the extension or the host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// Those that were accepted in the order in which they are tried, then those that were refused.
    pub offers: Vec<Offer>,
    /// Offers that were taken and did not keep their word, in order; the one that did is among them only if it was late.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// The most that its whole life may cost, also when it is made longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_total: Option<Money>,
    /// What the request itself demanded: it holds for whatever replaces the sandbox as well.
    #[serde(default, skip_serializing_if = "is_default")]
    pub demanded: Constraints,
    /// When a second sandbox is started beside a slow first one; absent for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hedge_after: Option<Dur>,
    /// Another backend that may have something of this sandbox: the second one while both are started, then the slower
    /// one until it is clean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hedge: Option<Backend>,
    /// That two were started, and which of them stayed; kept when the other one is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hedged: Option<Box<Hedged>>,
}

fn is_default(constraints: &Constraints) -> bool {
    *constraints == Constraints::default()
}

/// The second sandbox that was started beside a slow first one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Hedged {
    pub extension: String,
    pub host: String,
    /// It was the second that stayed.
    pub won: bool,
    /// The first.
    pub beside: Backend,
    /// The process that made both, as its leases name it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub maker: String,
}

/// One accepted offer on which the sandbox could not be established.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Attempt {
    pub extension: String,
    pub host: String,
    /// The stable code of the error.
    pub code: String,
    pub reason: String,
    /// What kind of trouble it was; absent where the request was at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    #[serde(default)]
    pub duration_ms: u64,
    #[serde(default)]
    pub outcome: AttemptOutcome,
}

/// What became of a try that did not go as it should.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// Nothing of it is left.
    #[default]
    Failed,
    /// It was late, lived all the same, and was taken over.
    Adopted,
}

impl Attempt {
    /// `ext.docker on build1: no answer in time (timeout)`.
    pub fn told(&self) -> String {
        let class = self.class.map_or_else(|| self.code.clone(), |class| class.to_string());
        format!("{}: {} ({class})", name(&self.extension, &self.host), self.reason)
    }
}

/// `ext.docker on build1`; the machine itself is not named.
fn name(extension: &str, host: &str) -> String {
    match host {
        crate::host::LOCAL => extension.to_owned(),
        host => format!("{extension} on {host}"),
    }
}

impl RouteDecision {
    /// The first accepted offer.
    pub fn chosen(&self) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.accepted)
    }

    /// The first accepted offer that was not tried yet.
    pub fn untried(&self) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.accepted && !self.was_tried(offer))
    }

    /// The first accepted offer beside this one that was not tried yet.
    pub fn untried_beside(&self, taken: &Backend) -> Option<&Offer> {
        let is_taken = |offer: &Offer| offer.extension == taken.extension && offer.host == taken.host;
        self.offers.iter().find(|offer| offer.accepted && !self.was_tried(offer) && !is_taken(offer))
    }

    /// The tries that failed and were followed by another one.
    pub fn fallbacks(&self) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().filter(|attempt| attempt.outcome == AttemptOutcome::Failed)
    }

    pub fn offer(&self, extension: &str, host: &str) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.extension == extension && offer.host == host)
    }

    fn was_tried(&self, offer: &Offer) -> bool {
        self.attempts.iter().any(|past| past.extension == offer.extension && past.host == offer.host)
    }
}
