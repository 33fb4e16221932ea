//! What is known about one candidate when the decision is made.

use jiff::Timestamp;

use super::breaker::{Breaker, BreakerState};
use super::latency::Digest;
use super::offer::{Offer, OfferHealth, OfferQuote};
use super::refusal::Refusal;
use crate::capability::Capability;
use crate::extension::Location;

/// An extension on a host, as placement offers it, with what else is known about it.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    pub offer: Offer,
    /// Absent when it is not installed.
    pub capability: Option<&'a Capability>,
    pub location: Location,
    pub price: Price,
    pub latency: Option<Digest>,
    /// Those of this extension and host.
    pub breakers: &'a [Breaker],
    /// Which limit of ours one more sandbox there would break.
    pub full: Option<Refusal>,
}

/// What it costs, or why that is not known.
#[derive(Clone, Debug)]
pub enum Price {
    Quoted(OfferQuote),
    Unknown(String),
}

impl Price {
    pub fn quote(&self) -> Option<OfferQuote> {
        match self {
            Self::Quoted(quote) => Some(*quote),
            Self::Unknown(_) => None,
        }
    }
}

/// The worst of several breakers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health<'a> {
    pub state: BreakerState,
    pub breaker: &'a Breaker,
}

impl<'a> Health<'a> {
    /// Nothing where all are closed.
    pub fn of(breakers: &'a [Breaker], now: Timestamp) -> Option<Self> {
        let rank = |state| match state {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        };
        breakers
            .iter()
            .map(|breaker| Self { state: breaker.state(now), breaker })
            .filter(|health| health.state != BreakerState::Closed)
            .max_by_key(|health| (rank(health.state), health.breaker.is_probed(now), health.breaker.until))
    }

    pub fn shown(&self) -> OfferHealth {
        OfferHealth { state: self.state, class: self.breaker.class, until: self.breaker.until }
    }
}
