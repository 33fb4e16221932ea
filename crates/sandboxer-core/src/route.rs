//! Which backend fulfils a request, in which order the others follow, and why some do not.
//!
//! Everything here is a function of its arguments: the wishes of configuration, profile and request ([`Route`]), the
//! candidates with what is known about them ([`Candidate`]), the time, and a number from a die. Whoever calls it reads
//! hosts, prices and the past, and remembers what came of it.

mod breaker;
mod candidate;
mod latency;
mod limits;
mod merge;
mod offer;
mod rank;
mod refusal;
mod refuse;
#[cfg(test)]
mod tests;
mod unmet;

pub use breaker::{Breaker, BreakerState};
pub use candidate::{Candidate, Health, Price};
pub use latency::{Digest, Window};
pub use limits::{ExtensionLimits, Slots};
pub use merge::{Bounds, Known, Route, candidates};
pub use offer::{
    Attempt, AttemptOutcome, Backend, Hedged, Offer, OfferHealth, OfferLatency, OfferQuote, RouteDecision,
};
pub use rank::decide;
pub use refusal::Refusal;
pub use unmet::unmet;
