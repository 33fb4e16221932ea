//! One set of wishes from three: the request's over the profile's over the configuration's. Preferences of the upper
//! one win; constraints only ever become tighter.

use std::collections::BTreeMap;

use crate::duration::Dur;
use crate::isolation::IsolationLevel;
use crate::money::Money;
use crate::profile::{Constraints, Hedge, Profile, RouteSpec, Strategy};
use crate::request::CreateRequest;

/// What applies to one create.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Route {
    pub strategy: Strategy,
    /// Nobody asked for a strategy, and the profile names extensions: their order stands.
    pub is_chain: bool,
    pub order: Vec<String>,
    /// Absent is no restriction; empty leaves nobody.
    pub only: Option<Vec<String>>,
    pub ignore: Vec<String>,
    pub weights: BTreeMap<String, u32>,
    pub hedge: Option<Hedge>,
    /// The request's `extension`: then no other is a candidate.
    pub asked: Option<String>,
    /// The profile's `extension` and fallbacks, and with those the request's fallbacks.
    pub named: Vec<String>,
    /// Fallbacks after all others: the configuration's, and the request's where the profile names nobody.
    pub last: Vec<String>,
    pub bounds: Bounds,
}

/// The constraints of all three together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub max_cost_per_hour: Option<Money>,
    pub max_cost_total: Option<Money>,
    pub isolation: Option<IsolationLevel>,
    /// All of them, which contradict each other if they differ.
    pub regions: Vec<String>,
    pub capabilities: Vec<String>,
    pub max_latency: Option<Dur>,
    /// Of each of these lists one label.
    pub residency: Vec<Vec<String>>,
}

impl Route {
    pub fn new(configuration: &RouteSpec, profile: &Profile, request: &CreateRequest) -> Self {
        let nothing = RouteSpec::default();
        let asked = request.route.as_ref().unwrap_or(&nothing);
        let layers = [configuration, &profile.route, asked];
        let strategy = layers.iter().rev().find_map(|layer| layer.strategy);
        let mut named: Vec<String> = profile.extension.iter().cloned().collect();
        named.extend(profile.route.fallback.iter().cloned());
        // After those that the profile names; where it names none, after all others.
        let mut last = Vec::new();
        if named.is_empty() { &mut last } else { &mut named }.extend(asked.fallback.iter().cloned());
        last.extend(configuration.fallback.iter().cloned());
        let upper = |list: fn(&RouteSpec) -> &Vec<String>| {
            layers.iter().rev().map(|layer| list(layer)).find(|list| !list.is_empty()).cloned()
        };
        let mut bounds = Bounds::default();
        bounds.regions.extend(profile.requires.region.clone());
        layers.iter().for_each(|layer| bounds.tighten(&layer.constraints));
        bounds.max_cost_total = least(bounds.max_cost_total, request.max_cost);
        Self {
            strategy: strategy.unwrap_or_default(),
            is_chain: profile.route.strategy.is_none() && asked.strategy.is_none() && !named.is_empty(),
            order: upper(|layer| &layer.order).unwrap_or_default(),
            only: layers.iter().filter(|layer| !layer.only.is_empty()).fold(None, |kept, layer| {
                Some(match kept {
                    None => layer.only.clone(),
                    Some(kept) => kept.into_iter().filter(|id| layer.only.contains(id)).collect(),
                })
            }),
            ignore: layers.iter().flat_map(|layer| layer.ignore.iter().cloned()).collect(),
            weights: layers
                .iter()
                .rev()
                .map(|layer| &layer.weights)
                .find(|weights| !weights.is_empty())
                .cloned()
                .unwrap_or_default(),
            hedge: layers
                .iter()
                .rev()
                .find_map(|layer| layer.hedge)
                .filter(|hedge| *hedge != Hedge::Flag(false)),
            asked: request.extension.clone(),
            named,
            last,
            bounds,
        }
    }
}

impl Bounds {
    /// Adds what one layer demands.
    pub fn tighten(&mut self, more: &Constraints) {
        self.max_cost_per_hour = least(self.max_cost_per_hour, more.max_cost_per_hour);
        self.max_cost_total = least(self.max_cost_total, more.max_cost_total);
        self.max_latency = least(self.max_latency, more.max_latency);
        self.isolation = self.isolation.max(more.require_isolation);
        if let Some(region) = more.region.as_ref().filter(|region| !self.regions.contains(region)) {
            self.regions.push(region.clone());
        }
        for name in &more.capabilities {
            if !self.capabilities.contains(name) {
                self.capabilities.push(name.clone());
            }
        }
        if !more.residency.is_empty() {
            self.residency.push(more.residency.clone());
        }
    }
}

/// The smaller one of those that are there.
fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// An extension that is installed.
#[derive(Clone, Debug)]
pub struct Known<'a> {
    pub id: &'a str,
    /// Only for who names it.
    pub only_by_name: bool,
}

/// The extensions that are asked, in the order in which they were named.
pub fn candidates(route: &Route, known: &[Known<'_>]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    if let Some(asked) = &route.asked {
        return vec![asked.clone()];
    }
    let is_explicit = route.strategy == Strategy::Explicit;
    if is_explicit {
        out.extend(route.order.iter().cloned());
    }
    out.extend(route.named.iter().cloned());
    if out.is_empty() && !is_explicit {
        out.extend(known.iter().filter(|one| !one.only_by_name).map(|one| one.id.to_owned()));
        let by_name = route.order.iter().chain(route.only.iter().flatten()).chain(route.weights.keys());
        out.extend(by_name.cloned());
    }
    out.extend(route.last.iter().cloned());
    let mut seen = std::collections::BTreeSet::new();
    out.retain(|id| seen.insert(id.clone()));
    out
}
