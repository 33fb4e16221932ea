//! Why a candidate is not used. Nothing here can be talked over by a strategy.

use jiff::Timestamp;

use super::breaker::BreakerState;
use super::candidate::{Candidate, Health, Price};
use super::merge::Route;
use super::refusal::Refusal;
use crate::money::Money;

/// The first reason against it; nothing when it may be used.
pub(super) fn refuse(
    route: &Route,
    candidate: &Candidate<'_>,
    health: Option<&Health<'_>>,
    now: Timestamp,
) -> Option<Refusal> {
    by_name(route, candidate)
        .or_else(|| by_nature(route, candidate))
        .or_else(|| by_place(route, candidate))
        .or_else(|| by_price(route, candidate))
        .or_else(|| by_latency(route, candidate, now))
        .map(Refusal::for_good)
        .or_else(|| candidate.full.clone().filter(|full| full.again_at.is_none()))
        .or_else(|| by_health(health, now))
        .or_else(|| candidate.full.clone())
}

fn by_name(route: &Route, candidate: &Candidate<'_>) -> Option<String> {
    let id = &candidate.offer.extension;
    if route.ignore.contains(id) {
        return Some("`route.ignore` names it".into());
    }
    match &route.only {
        Some(only) if !only.contains(id) => Some("`route.only` does not name it".into()),
        _ => None,
    }
}

fn by_nature(route: &Route, candidate: &Candidate<'_>) -> Option<String> {
    let Some(capability) = candidate.capability else {
        return Some("this extension is not installed".into());
    };
    if let Some(wanted) = route.bounds.isolation.filter(|wanted| capability.isolation < *wanted) {
        return Some(format!("isolation `{}` is weaker than the required `{wanted}`", capability.isolation));
    }
    let lacks = |name: &&String| capability.flag(name) != Some(true);
    let lacking: Vec<String> =
        route.bounds.capabilities.iter().filter(lacks).map(|name| format!("`{name}`")).collect();
    (!lacking.is_empty()).then(|| format!("it lacks the required capability {}", lacking.join(", ")))
}

fn by_place(route: &Route, candidate: &Candidate<'_>) -> Option<String> {
    let there = &candidate.location;
    for region in &route.bounds.regions {
        if !there.regions.contains(region) {
            return Some(format!(
                "it is in {}, and `{region}` is required",
                any_of(&there.regions, "no region")
            ));
        }
    }
    for allowed in &route.bounds.residency {
        if !allowed.iter().any(|label| there.residency.contains(label)) {
            let kept = any_of(&there.residency, "no named place");
            return Some(format!("it keeps data in {kept}, and {} is required", any_of(allowed, "")));
        }
    }
    None
}

fn any_of(words: &[String], nothing: &str) -> String {
    if words.is_empty() { nothing.to_owned() } else { words.join(" or ") }
}

fn by_price(route: &Route, candidate: &Candidate<'_>) -> Option<String> {
    let bounds = &route.bounds;
    let quote = match &candidate.price {
        Price::Quoted(quote) => quote,
        Price::Unknown(why) => return Some(format!("its price is not known: {why}")),
    };
    let above = |cost: Money, most: Option<Money>| most.filter(|most| cost > *most);
    let (hour, whole) = (quote.total_per_hour(), quote.total());
    if let Some(most) = above(hour, bounds.max_cost_per_hour) {
        return Some(format!("an hour costs {hour}, above `max_cost_per_hour` of {most}"));
    }
    if let Some(most) = above(whole, bounds.max_cost_total) {
        return Some(format!("the TTL costs {whole}, above the accepted {most}"));
    }
    None
}

fn by_latency(route: &Route, candidate: &Candidate<'_>, now: Timestamp) -> Option<String> {
    let most = route.bounds.max_latency?;
    let digest = candidate.latency.filter(|digest| digest.is_known(now) && digest.p95 > most)?;
    Some(format!(
        "its creates took {} (p95 of {}), above `max_latency` of {most}",
        digest.p95, digest.samples
    ))
}

fn by_health(health: Option<&Health<'_>>, now: Timestamp) -> Option<Refusal> {
    let Health { state, breaker } = health?;
    let failures = if breaker.failures == 1 { "failure" } else { "failures" };
    let trouble = format!("{} {failures} ({}): {}", breaker.failures, breaker.class, breaker.reason);
    match (state, breaker.until) {
        (BreakerState::Open, Some(until)) => {
            Some(Refusal::until(until, format!("left alone until {until} after {trouble}")))
        }
        (BreakerState::HalfOpen, _) if breaker.is_probed(now) => {
            let reason = format!("somebody else is trying it again after {trouble}");
            Some(Refusal { reason, again_at: breaker.probe_until })
        }
        _ => None,
    }
}
