//! In which order the accepted ones are tried.

use std::cmp::Reverse;
use std::fmt::Write as _;

use jiff::Timestamp;

use super::candidate::{Candidate, Health};
use super::latency::Digest;
use super::merge::Route;
use super::offer::{Offer, RouteDecision};
use super::refusal::Refusal;
use super::refuse::refuse;
use crate::duration::Dur;
use crate::money::Money;
use crate::profile::{Hedge, Strategy};

/// With `lowest-latency`, one decision in so many goes first to somebody about whom little is known.
const EXPLORE_ONE_IN: u64 = 20;
/// And never to one that costs more than so many times the one that it goes before.
const EXPLORE_AT_MOST: i128 = 2;
/// When nothing is known about the first offer.
const HEDGE_AFTER: Dur = Dur::from_secs(5);

/// An accepted offer with what it is ranked by.
struct Ranked {
    /// Boxed: sorting moves these around.
    offer: Box<Offer>,
    /// Where placement put it.
    place: usize,
    amount: Money,
    /// Enough and new enough samples.
    known: Option<Digest>,
}

/// The same candidates, time and die give the same decision.
pub fn decide(route: &Route, candidates: Vec<Candidate<'_>>, now: Timestamp, dice: u64) -> RouteDecision {
    let (mut accepted, mut refused) = (Vec::new(), Vec::new());
    for (place, candidate) in candidates.into_iter().enumerate() {
        let health = Health::of(candidate.breakers, now);
        let refusal =
            if candidate.offer.accepted { refuse(route, &candidate, health.as_ref(), now) } else { None };
        let known = candidate.latency.filter(|digest| digest.is_known(now));
        let quote = candidate.price.quote();
        let mut offer = candidate.offer;
        offer.self_hosted = candidate.capability.is_some_and(|capability| capability.self_hosted);
        offer.quote = quote.filter(|_| candidate.capability.is_some());
        offer.latency = candidate.latency.map(|digest| digest.shown());
        offer.health = health.map(|health| health.shown());
        if let Some(Refusal { reason, again_at }) = refusal {
            (offer.accepted, offer.reason, offer.again_at) = (false, reason, again_at);
        }
        if offer.accepted {
            let amount = quote.map(|quote| quote.total()).unwrap_or_default();
            accepted.push(Ranked { offer: Box::new(offer), place, amount, known });
        } else {
            refused.push(offer);
        }
    }
    let mut random = Dice(dice);
    match route.strategy {
        _ if route.is_chain => accepted.sort_by_key(|one| one.place),
        Strategy::Explicit => accepted.sort_by_key(|one| one.place),
        Strategy::PreferSelfHosted => prefer_self_hosted(&mut accepted),
        Strategy::LowestCost => lowest_cost(&mut accepted),
        Strategy::LowestLatency => lowest_latency(&mut accepted, &mut random),
        Strategy::Weighted => weighted(route, &mut accepted, &mut random),
    }
    if route.bounds.max_latency.is_some() {
        for one in accepted.iter_mut().filter(|one| one.known.is_none()) {
            one.offer.reason.push_str(", comes late because its latency is not known yet");
        }
        // Stable, as all that follow: within each part the strategy's order stays.
        accepted.sort_by_key(|one| one.known.is_none());
    }
    put_first(route, &mut accepted);
    let hedge_after = hedge_after(route, &accepted);
    let offers = accepted.into_iter().map(|one| *one.offer).chain(refused).collect();
    RouteDecision {
        strategy: route.strategy,
        // Whoever has the request knows.
        pinned: false,
        demanded: Default::default(),
        offers,
        attempts: Vec::new(),
        max_cost_total: route.bounds.max_cost_total,
        hedge_after,
        hedge: None,
        hedged: None,
    }
}

/// `order` comes before any strategy.
fn put_first(route: &Route, accepted: &mut [Ranked]) {
    if route.order.is_empty() {
        return;
    }
    let rank = |one: &Ranked| route.order.iter().position(|id| *id == one.offer.extension);
    for one in accepted.iter_mut() {
        if let Some(rank) = rank(one) {
            say(&mut one.offer, format_args!(", number {} of `route.order`", rank + 1));
        }
    }
    accepted.sort_by_key(|one| rank(one).unwrap_or(usize::MAX));
}

fn hedge_after(route: &Route, accepted: &[Ranked]) -> Option<Dur> {
    if accepted.len() < 2 {
        return None;
    }
    match route.hedge? {
        Hedge::After(hedge) => Some(hedge.after),
        Hedge::Flag(false) => None,
        Hedge::Flag(true) => Some(accepted[0].known.map_or(HEDGE_AFTER, |digest| digest.p95)),
    }
}

/// Adds to the reason.
fn say(offer: &mut Offer, words: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = offer.reason.write_fmt(words);
}

fn p50(one: &Ranked) -> u64 {
    one.known.map_or(u64::MAX, |digest| digest.p50.as_millis())
}

fn nanos(amount: Money) -> u64 {
    u64::try_from(amount.nanos()).unwrap_or(u64::MAX)
}

fn prefer_self_hosted(accepted: &mut [Ranked]) {
    accepted.sort_by_key(|one| match one.offer.self_hosted {
        true => (false, Money::ZERO, 0, one.place),
        false => (true, one.amount, p50(one), one.place),
    });
    for one in accepted.iter_mut().filter(|one| !one.offer.self_hosted) {
        one.offer.score = Some(nanos(one.amount));
        say(&mut one.offer, format_args!(", hosted, {} for the TTL", one.amount));
    }
}

fn lowest_cost(accepted: &mut [Ranked]) {
    accepted.sort_by_key(|one| (one.amount, p50(one), one.place));
    for one in accepted {
        one.offer.score = Some(nanos(one.amount));
        say(&mut one.offer, format_args!(", {} for the TTL", one.amount));
    }
}

fn lowest_latency(accepted: &mut [Ranked], random: &mut Dice) {
    accepted.sort_by_key(|one| (p50(one), one.amount, one.place));
    for one in accepted.iter_mut() {
        match one.known {
            Some(digest) => {
                one.offer.score = Some(digest.p50.as_millis());
                say(&mut one.offer, format_args!(", ready in {} (p50)", digest.p50));
            }
            None => one.offer.reason.push_str(", not measured enough"),
        }
    }
    explore(accepted, random);
}

/// Now and then somebody unknown goes first, or nobody would ever learn that it has become quick.
fn explore(accepted: &mut [Ranked], random: &mut Dice) {
    let Some(first) = accepted.first().filter(|first| first.known.is_some()) else { return };
    if random.below(EXPLORE_ONE_IN) != 0 {
        return;
    }
    let most = first.amount.nanos().saturating_mul(EXPLORE_AT_MOST);
    let may = |one: &Ranked| one.known.is_none() && one.amount.nanos() <= most;
    let unknown: Vec<usize> =
        accepted.iter().enumerate().filter(|(_, one)| may(one)).map(|(index, _)| index).collect();
    if unknown.is_empty() {
        return;
    }
    let chosen = unknown[random.below(unknown.len() as u64) as usize];
    accepted[..=chosen].rotate_right(1);
    accepted[0].offer.reason.push_str(", tried first this time to learn how quick it is");
}

/// Extensions by chance, each as often as its weight says; the hosts of one keep the order of placement.
fn weighted(route: &Route, accepted: &mut Vec<Ranked>, random: &mut Dice) {
    let mut groups: Vec<(u64, Vec<Ranked>)> = Vec::new();
    for one in accepted.drain(..) {
        match groups.iter_mut().find(|(_, group)| group[0].offer.extension == one.offer.extension) {
            Some((_, group)) => group.push(one),
            None => groups.push((0, vec![one])),
        }
    }
    let price = |group: &[Ranked]| group.iter().map(|one| one.amount).min().unwrap_or_default().nanos();
    let cheapest = groups.iter().map(|(_, group)| price(group)).filter(|price| *price > 0).min();
    for (weight, group) in &mut groups {
        *weight = match route.weights.get(&group[0].offer.extension) {
            Some(weight) => u64::from(*weight),
            None if !route.weights.is_empty() => 0,
            None => by_price(price(group), cheapest),
        };
        for one in group {
            one.offer.score = Some(*weight);
            say(&mut one.offer, format_args!(", weight {weight}"));
        }
    }
    // Who has no weight comes last, the cheaper the earlier.
    groups.sort_by_key(|(weight, group)| (Reverse(*weight > 0), if *weight > 0 { 0 } else { price(group) }));
    while !groups.is_empty() {
        let total: u64 = groups.iter().map(|(weight, _)| *weight).sum();
        let mut left = random.below(total);
        let drawn = groups.iter().position(|(weight, _)| {
            let here = left < *weight;
            left = left.saturating_sub(*weight);
            here
        });
        accepted.extend(groups.remove(drawn.unwrap_or(0)).1);
    }
}

/// One over the square of the price, so that twice the price is a quarter as often. Who is free weighs as much as the
/// cheapest.
fn by_price(price: i128, cheapest: Option<i128>) -> u64 {
    const TOP: i128 = 1_000;
    let (Some(cheapest), true) = (cheapest, price > 0) else { return (TOP * TOP) as u64 };
    let share = cheapest.saturating_mul(TOP) / price;
    u64::try_from((share * share).max(1)).unwrap_or(1)
}

/// Numbers that follow from the first: SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 up to `end`, without it; 0 where there is no room.
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}
