//! Whatever the candidates and the wishes: nobody is accepted who breaks one, and everybody refused is told why.

use proptest::prelude::*;

use super::*;
use crate::error::Class;
use crate::profile::Strategy;

const NAMES: [&str; 6] = ["ext.a", "ext.b", "ext.c", "ext.d", "ext.e", "ext.f"];
const PLACES: [&str; 3] = ["eu", "us", "ch"];
const FLAGS: [&str; 3] = ["snapshot", "gpu", "pause"];

/// What a candidate is made of, so that it can be lent out.
#[derive(Clone, Debug)]
struct Seed {
    name: usize,
    host: u8,
    fits: bool,
    capability: Option<Capability>,
    places: Vec<String>,
    cents: Option<u32>,
    latency: Option<(u64, u32)>,
    breaker: Option<(usize, i64, bool)>,
    full: bool,
}

prop_compose! {
    fn seeds()(
        name in 0..NAMES.len(), host in 0_u8..3, fits in prop::bool::weighted(0.8),
        capability in prop::option::weighted(0.9, (any::<[bool; 4]>(), 0_usize..4)),
        places in prop::sample::subsequence(PLACES.to_vec(), 0..=3),
        cents in prop::option::weighted(0.9, 0_u32..5), latency in prop::option::of((1_u64..500, 1_u32..12)),
        breaker in prop::option::weighted(0.3, (0_usize..7, -100_i64..100, any::<bool>())), full in prop::bool::weighted(0.1),
    ) -> Seed {
        let levels =
            [IsolationLevel::Network, IsolationLevel::Policy, IsolationLevel::Container, IsolationLevel::Microvm];
        let capability = capability.map(|([snapshot, gpu, pause, self_hosted], level)| Capability {
            snapshot, gpu, pause, self_hosted, isolation: levels[level], ..Capability::default()
        });
        let places = places.into_iter().map(str::to_owned).collect();
        Seed { name, host, fits, capability, places, cents, latency, breaker, full }
    }
}

fn some_of(words: &'static [&'static str]) -> impl Strategy_<Value = Vec<String>> {
    prop::sample::subsequence(words.to_vec(), 0..=words.len())
        .prop_map(|words| words.into_iter().map(str::to_owned).collect())
}
use proptest::strategy::Strategy as Strategy_;

prop_compose! {
    fn routes()(
        strategy in prop::sample::select(Strategy::ALL.to_vec()), is_chain in prop::bool::weighted(0.2),
        order in some_of(&NAMES), only in prop::option::of(some_of(&NAMES)), ignore in prop::option::weighted(0.3, some_of(&NAMES[..2])),
        weights in prop::collection::btree_map(prop::sample::select(NAMES.to_vec()).prop_map(str::to_owned), 1_u32..9, 0..3),
        hour in prop::option::of(0_u32..5), total in prop::option::of(0_u32..5), level in prop::option::of(0_usize..4),
        region in prop::option::weighted(0.3, prop::sample::select(PLACES.to_vec())), capabilities in some_of(&FLAGS[..2]),
        max_latency in prop::option::of(1_u64..500), residency in prop::collection::vec(some_of(&PLACES), 0..2),
    ) -> Route {
        let levels =
            [IsolationLevel::Network, IsolationLevel::Policy, IsolationLevel::Container, IsolationLevel::Microvm];
        Route {
            strategy: strategy.1, is_chain, order, only, ignore: ignore.unwrap_or_default(), weights,
            bounds: Bounds {
                max_cost_per_hour: hour.map(cents), max_cost_total: total.map(cents),
                isolation: level.map(|level| levels[level]), regions: region.into_iter().map(str::to_owned).collect(),
                capabilities, max_latency: max_latency.map(Dur::from_millis), residency,
            },
            ..Route::default()
        }
    }
}

fn cents(cents: u32) -> Money {
    Money::from_nanos(i128::from(cents) * 10_000_000)
}

fn breakers(seeds: &[Seed]) -> Vec<Vec<Breaker>> {
    let made = |seed: &Seed| {
        seed.breaker.map(|(class, until, probed)| Breaker {
            class: Class::ALL[class],
            failures: 1,
            last_at: now(),
            until: Some(now() + SignedDuration::from_secs(until)),
            probe_until: probed.then(|| now() + SignedDuration::from_secs(1)),
            reason: "it failed".into(),
        })
    };
    seeds.iter().map(|seed| made(seed).into_iter().collect()).collect()
}

fn candidates_of<'a>(seeds: &'a [Seed], breakers: &'a [Vec<Breaker>]) -> Vec<Candidate<'a>> {
    let made = |(seed, breakers): (&'a Seed, &'a Vec<Breaker>)| Candidate {
        offer: Offer {
            extension: NAMES[seed.name].into(),
            host: format!("h{}", seed.host),
            accepted: seed.fits,
            reason: if seed.fits { "fits the profile" } else { "does not fit" }.into(),
            ..Offer::default()
        },
        capability: seed.capability.as_ref(),
        location: Location { regions: seed.places.clone(), residency: seed.places.clone() },
        price: match seed.cents {
            Some(amount) => Price::Quoted(OfferQuote {
                amount: cents(amount),
                per_hour: cents(amount),
                ..OfferQuote::default()
            }),
            None => Price::Unknown("there is none".into()),
        },
        latency: seed.latency.map(|(ms, samples)| measured(ms, samples)),
        breakers,
        full: seed.full.then(|| Refusal::full(now(), "at its limit")),
    };
    seeds.iter().zip(breakers).map(made).collect()
}

/// Unique backends, as placement gives them.
fn unique(seeds: Vec<Seed>) -> Vec<Seed> {
    let mut seen = std::collections::BTreeSet::new();
    seeds.into_iter().filter(|seed| seen.insert((seed.name, seed.host))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn nobody_crosses_a_constraint(seeds in prop::collection::vec(seeds(), 0..12), route in routes(), dice in any::<u64>()) {
        let seeds = unique(seeds);
        let breakers = breakers(&seeds);
        let decision = decide(&route, candidates_of(&seeds, &breakers), now(), dice);
        prop_assert_eq!(decision.offers.len(), seeds.len(), "everybody is told");
        prop_assert!(decision.offers.is_sorted_by_key(|offer| !offer.accepted), "the accepted ones come first");
        for offer in &decision.offers {
            prop_assert!(!offer.reason.is_empty());
            let seed = seeds.iter().find(|seed| NAMES[seed.name] == offer.extension && offer.host == format!("h{}", seed.host)).unwrap();
            if !offer.accepted {
                continue;
            }
            let capability = seed.capability.as_ref().ok_or_else(|| TestCaseError::fail("not installed"))?;
            let bounds = &route.bounds;
            prop_assert!(seed.fits && !seed.full);
            prop_assert!(bounds.isolation.is_none_or(|wanted| capability.isolation >= wanted));
            prop_assert!(bounds.capabilities.iter().all(|name| capability.flag(name) == Some(true)));
            let price = cents(seed.cents.ok_or_else(|| TestCaseError::fail("no price"))?);
            prop_assert!(bounds.max_cost_per_hour.is_none_or(|most| price <= most));
            prop_assert!(bounds.max_cost_total.is_none_or(|most| price <= most));
            prop_assert!(bounds.regions.iter().all(|region| seed.places.contains(region)));
            prop_assert!(bounds.residency.iter().all(|list| list.iter().any(|label| seed.places.contains(label))));
            prop_assert!(route.only.as_ref().is_none_or(|only| only.contains(&offer.extension)));
            prop_assert!(!route.ignore.contains(&offer.extension));
            if let (Some(most), Some((ms, samples))) = (bounds.max_latency, seed.latency) {
                prop_assert!(samples < Digest::FEW || Dur::from_millis(ms) <= most);
            }
            prop_assert!(seed.breaker.is_none_or(|(_, until, probed)| until <= 0 && !probed));
        }
    }

    #[test]
    fn the_same_is_decided_the_same(seeds in prop::collection::vec(seeds(), 0..12), route in routes(), dice in any::<u64>()) {
        let seeds = unique(seeds);
        let breakers = breakers(&seeds);
        let first = decide(&route, candidates_of(&seeds, &breakers), now(), dice);
        prop_assert_eq!(&first, &decide(&route, candidates_of(&seeds, &breakers), now(), dice));
        // Chance changes the order and nothing else.
        let other = decide(&route, candidates_of(&seeds, &breakers), now(), dice.wrapping_add(1));
        let set = |decision: &RouteDecision| -> std::collections::BTreeSet<(bool, String, String)> {
            decision.offers.iter().map(|offer| (offer.accepted, offer.extension.clone(), offer.host.clone())).collect()
        };
        prop_assert_eq!(set(&first), set(&other));
        let read: RouteDecision = serde_json::from_value(serde_json::to_value(&first).unwrap()).unwrap();
        prop_assert_eq!(read, first);
    }

    #[test]
    fn order_is_the_front(seeds in prop::collection::vec(seeds(), 0..12), route in routes(), dice in any::<u64>()) {
        let seeds = unique(seeds);
        let breakers = breakers(&seeds);
        let decision = decide(&route, candidates_of(&seeds, &breakers), now(), dice);
        let rank = |offer: &&Offer| route.order.iter().position(|id| *id == offer.extension).unwrap_or(usize::MAX);
        let accepted: Vec<&Offer> = decision.offers.iter().filter(|offer| offer.accepted).collect();
        prop_assert!(accepted.is_sorted_by_key(rank));
    }

    #[test]
    fn explicit_never_leaves_its_list(named in some_of(&NAMES[..4]), order in some_of(&NAMES[2..]), last in some_of(&NAMES[..1])) {
        let route = Route { strategy: Strategy::Explicit, named: named.clone(), order: order.clone(), last: last.clone(), ..Route::default() };
        let known = NAMES.map(|id| Known { id, only_by_name: false });
        let asked = candidates(&route, &known);
        prop_assert!(asked.iter().all(|id| named.contains(id) || order.contains(id) || last.contains(id)));
        prop_assert_eq!(asked.iter().collect::<std::collections::BTreeSet<_>>().len(), asked.len());
    }

    #[test]
    fn a_window_is_between_its_extremes(samples in prop::collection::vec((0_u64..100_000, 0_i64..100_000), 1..100)) {
        let mut window = Window::default();
        let mut last = Digest::default();
        for (ms, at) in &samples {
            last = window.add(Dur::from_millis(*ms), now() + SignedDuration::from_secs(*at));
        }
        let kept: Vec<u64> = samples.iter().rev().take(Window::LENGTH).map(|(ms, _)| *ms).collect();
        let (least, most) = (*kept.iter().min().unwrap(), *kept.iter().max().unwrap());
        prop_assert!(least <= last.p50.as_millis() && last.p50 <= last.p95 && last.p95.as_millis() <= most);
        prop_assert!(last.samples as usize == kept.len() && last.weight >= 1.0 - 1e-9);
    }
}
