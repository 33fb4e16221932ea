//! How long a decision takes: 50 offers on which 1,000 creates were measured, some of which have failed.
//!
//!     cargo run --release -p sandboxer-core --example route

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement prints what it found")]

use std::collections::HashMap;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use sandboxer_core::capability::Capability;
use sandboxer_core::extension::Location;
use sandboxer_core::profile::Strategy;
use sandboxer_core::route::{
    Backend, Bounds, Breaker, Candidate, Digest, Offer, OfferQuote, Price, Route, Window, decide,
};
use sandboxer_core::{Class, Dur, Money};

const OFFERS: usize = 50;
const HISTORY: usize = 1_000;
const ROUNDS: usize = 20_000;

fn main() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let backends: Vec<Backend> = (0..OFFERS)
        .map(|index| Backend {
            extension: format!("ext.provider-{}", index / 5),
            host: format!("host-{index}"),
        })
        .collect();
    let past = history(&backends, now);
    let breakers: Vec<Vec<Breaker>> = (0..OFFERS)
        .map(|index| {
            let failed =
                (index % 7 == 0).then(|| Breaker::after_failure(None, Class::Quota, "429", None, now));
            failed.into_iter().collect()
        })
        .collect();
    let capability = Capability { snapshot: true, exec: true, ..Capability::default() };
    let mut slowest: f64 = 0.0;
    for (name, strategy) in Strategy::ALL {
        let route = Route {
            strategy: *strategy,
            bounds: Bounds {
                max_cost_per_hour: Some("1.00".parse().unwrap()),
                capabilities: vec!["snapshot".into()],
                max_latency: Some(Dur::from_secs(5)),
                residency: vec![vec!["eu".into(), "ch".into()]],
                ..Bounds::default()
            },
            ..Route::default()
        };
        let mut times: Vec<u128> = Vec::with_capacity(ROUNDS);
        let mut accepted = 0;
        for round in 0..ROUNDS {
            // With everything that a create does for it: look up the past, put the candidates together, decide.
            let started = Instant::now();
            let candidates = candidates(&backends, &capability, &past, &breakers);
            let decision = decide(&route, candidates, now, round as u64);
            times.push(started.elapsed().as_nanos());
            accepted = decision.offers.iter().filter(|offer| offer.accepted).count();
        }
        times.sort_unstable();
        let at = |share: usize| times[times.len() * share / 100] as f64 / 1_000.0;
        println!(
            "{name:>18}: p50 {:6.1} µs, p99 {:6.1} µs ({OFFERS} offers, {accepted} accepted, {HISTORY} samples)",
            at(50),
            at(99)
        );
        slowest = slowest.max(at(50));
    }
    // For the bench: the strategy that takes longest.
    println!("figure route_p50_us {slowest:.1}");
}

fn history(backends: &[Backend], now: Timestamp) -> HashMap<Backend, Digest> {
    let mut windows: Vec<Window> = vec![Window::default(); backends.len()];
    let mut past = HashMap::new();
    for index in 0..HISTORY {
        let place = index % backends.len();
        let at = now - SignedDuration::from_secs((HISTORY - index) as i64);
        let took = Dur::from_millis(200 + (index as u64 * 7_919) % 900);
        past.insert(backends[place].clone(), windows[place].add(took, at));
    }
    past
}

fn candidates<'a>(
    backends: &[Backend],
    capability: &'a Capability,
    past: &HashMap<Backend, Digest>,
    breakers: &'a [Vec<Breaker>],
) -> Vec<Candidate<'a>> {
    let made = |(index, backend): (usize, &Backend)| {
        let amount = Money::from_nanos(10_000_000 * (1 + (index as i128 * 13) % 40));
        Candidate {
            offer: Offer {
                extension: backend.extension.clone(),
                host: backend.host.clone(),
                accepted: true,
                reason: "fits the profile".into(),
                ..Offer::default()
            },
            capability: Some(capability),
            location: Location { regions: Vec::new(), residency: vec!["eu".into()] },
            price: Price::Quoted(OfferQuote { amount, per_hour: amount, ..OfferQuote::default() }),
            latency: past.get(backend).copied(),
            breakers: &breakers[index],
            full: None,
        }
    };
    backends.iter().enumerate().map(made).collect()
}
