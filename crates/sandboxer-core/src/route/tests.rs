//! Decisions about candidates of every kind.

mod breakers;
mod merging;
mod properties;
mod strategies;

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::capability::Capability;
use crate::duration::Dur;
use crate::extension::Location;
use crate::isolation::IsolationLevel;
use crate::money::Money;

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn money(text: &str) -> Money {
    text.parse().unwrap()
}

fn able(self_hosted: bool) -> Capability {
    Capability {
        isolation: IsolationLevel::Container,
        exec: true,
        self_hosted,
        host_local: self_hosted,
        ..Capability::default()
    }
}

fn quoted(amount: &str) -> Price {
    Price::Quoted(OfferQuote { amount: money(amount), per_hour: money(amount), ..OfferQuote::default() })
}

fn candidate<'a>(extension: &str, capability: &'a Capability, amount: &str) -> Candidate<'a> {
    let offer = Offer {
        extension: extension.into(),
        host: "local".into(),
        accepted: true,
        reason: "fits the profile".into(),
        ..Offer::default()
    };
    Candidate {
        offer,
        capability: Some(capability),
        location: Location::default(),
        price: quoted(amount),
        latency: None,
        breakers: &[],
        full: None,
    }
}

/// So many samples of the same length, a second apart, the last one now.
fn measured(ms: u64, samples: u32) -> Digest {
    let mut window = Window::default();
    let mut digest = Digest::default();
    for index in 0..samples {
        let at = now() - SignedDuration::from_secs(i64::from(samples - 1 - index));
        digest = window.add(Dur::from_millis(ms), at);
    }
    digest
}

fn order(decision: &RouteDecision) -> Vec<&str> {
    decision.offers.iter().filter(|offer| offer.accepted).map(|offer| offer.extension.as_str()).collect()
}

fn refusal<'a>(decision: &'a RouteDecision, extension: &str) -> &'a str {
    let offer = decision.offers.iter().find(|offer| offer.extension == extension).unwrap();
    assert!(!offer.accepted, "{offer:?}");
    &offer.reason
}
