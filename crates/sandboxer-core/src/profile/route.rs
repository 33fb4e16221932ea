//! What a profile, a request or the configuration says about the choice of a backend. How these are put together and
//! what follows from them is in [`crate::route`].

mod rules;

pub(crate) use rules::{check_extension, is_place};

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::duration::Dur;
use crate::isolation::IsolationLevel;
use crate::money::Money;

/// The wishes of one of them; what is left out, the one below decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteSpec {
    /// `prefer-self-hosted` where nobody says anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// Extensions that come first, in this order, whatever the strategy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<String>,
    /// No other extensions than these; left out, there is no restriction.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "some_only")]
    #[schema(min_items = 1)]
    pub only: Vec<String>,
    /// Never these extensions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<String>,
    /// For `weighted`: how often an extension comes first, beside the others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, u32>,
    /// Extensions that are tried in order after the profile's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<String>,
    /// Start a second sandbox on the next offer when the first is slow, keep whichever is ready first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hedge: Option<Hedge>,
    #[serde(default)]
    pub constraints: Constraints,
}

impl RouteSpec {
    /// Every extension that it names, with the key that does.
    pub fn extensions(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let lists = [
            ("order", &self.order),
            ("only", &self.only),
            ("ignore", &self.ignore),
            ("fallback", &self.fallback),
        ];
        let listed = lists.into_iter().flat_map(|(key, ids)| ids.iter().map(move |id| (key, id.as_str())));
        listed.chain(self.weights.keys().map(|id| ("weights", id.as_str())))
    }
}

/// How the accepted offers are ranked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Machines of one's own first, then services by price.
    #[default]
    PreferSelfHosted,
    LowestCost,
    LowestLatency,
    /// Only extensions that somebody named, in that order.
    Explicit,
    /// By chance: by `weights`, or the cheaper the more often.
    Weighted,
}

impl Strategy {
    pub const ALL: &'static [(&'static str, Self)] = &[
        ("prefer-self-hosted", Self::PreferSelfHosted),
        ("lowest-cost", Self::LowestCost),
        ("lowest-latency", Self::LowestLatency),
        ("explicit", Self::Explicit),
        ("weighted", Self::Weighted),
    ];
}

/// Whether a slow create gets company: `true`, `false`, or `{ after: 2s }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged, expecting = "`hedge` is `true`, `false` or a time: `{ after: 2s }`")]
pub enum Hedge {
    /// After the measured p95 of the first offer.
    Flag(bool),
    After(HedgeAfter),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HedgeAfter {
    pub after: Dur,
}

/// What no choice may cross. A layer above can only make it tighter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Constraints {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_per_hour: Option<Money>,
    /// For the whole TTL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_total: Option<Money>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_isolation: Option<IsolationLevel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Names of capabilities that the extension must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// The measured p95 from create to ready. Who is known to be slower is refused, who is unknown comes last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_latency: Option<Dur>,
    /// Where data may be kept: one of these labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "some_residency")]
    #[schema(min_items = 1)]
    pub residency: Vec<String>,
}

fn some_only<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    some("only", from)
}

fn some_residency<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    some("residency", from)
}

/// A restriction to nobody is more likely a list that came out empty than a wish, and never the wish for no restriction.
fn some<'de, D: Deserializer<'de>>(key: &str, from: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    if names.is_empty() {
        let told = format!("`{key}` is an empty list; leave it out for no restriction");
        return Err(serde::de::Error::custom(told));
    }
    Ok(names)
}
