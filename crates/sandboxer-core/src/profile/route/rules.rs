//! What a `route` must keep, wherever it was written: in a profile with its place, in a request or the configuration
//! without one.

use super::{Hedge, RouteSpec, Strategy};
use crate::capability::Capability;
use crate::duration::Dur;
use crate::error::{Error, ErrorKind, Result};
use crate::money::Money;
use crate::profile::node::Path;
use crate::profile::reference::check_prefixed;
use crate::suggest::{did_you_mean, printable};

const MAX_LIST: usize = 256;
const MAX_NAME: usize = 128;
const MAX_WEIGHT: u32 = 1_000_000;

/// The first thing that is wrong, and where.
pub(in crate::profile) struct Wrong {
    pub(in crate::profile) path: Path,
    pub(in crate::profile) why: String,
    pub(in crate::profile) hint: Option<String>,
}

impl Wrong {
    fn at(path: Path, why: impl Into<String>) -> Self {
        Self { path, why: why.into(), hint: None }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl RouteSpec {
    /// For a request and for the configuration.
    pub fn validate(&self) -> Result<()> {
        self.check().map_err(|wrong| {
            let error = Error::new(ErrorKind::InvalidInput, format!("`{}`: {}", wrong.path, wrong.why));
            match wrong.hint {
                Some(hint) => error.with_hint(hint),
                None => error,
            }
        })
    }

    pub(in crate::profile) fn check(&self) -> std::result::Result<(), Wrong> {
        let route = |key| Path::of(&["route", key]);
        for (key, ids) in [("order", &self.order), ("only", &self.only), ("ignore", &self.ignore)] {
            extensions(&route(key), ids)?;
        }
        extensions(&route("fallback"), &self.fallback)?;
        if let Some(both) = self.only.iter().find(|id| self.ignore.contains(id)) {
            return Err(Wrong::at(route("ignore"), format!("`{both}` is in `only` as well")));
        }
        bounded(&route("weights"), self.weights.len())?;
        for (id, weight) in &self.weights {
            let path = route("weights").key(id);
            extension(&path, id)?;
            if !(1..=MAX_WEIGHT).contains(weight) {
                return Err(Wrong::at(path, format!("{weight} is not between 1 and {MAX_WEIGHT}"))
                    .hint("an extension that is never to be used belongs in `ignore`"));
            }
        }
        if !self.weights.is_empty() && self.strategy.is_some_and(|strategy| strategy != Strategy::Weighted) {
            return Err(Wrong::at(route("weights"), "only the strategy `weighted` uses them"));
        }
        if let Some(Hedge::After(hedge)) = self.hedge
            && hedge.after == Dur::ZERO
        {
            return Err(Wrong::at(route("hedge").key("after"), "it must be longer than zero"));
        }
        self.check_constraints()
    }

    fn check_constraints(&self) -> std::result::Result<(), Wrong> {
        let (at, bounds) = (|key| Path::of(&["route", "constraints", key]), &self.constraints);
        for (key, amount) in
            [("max_cost_per_hour", bounds.max_cost_per_hour), ("max_cost_total", bounds.max_cost_total)]
        {
            if amount.is_some_and(|amount| amount < Money::ZERO) {
                return Err(Wrong::at(at(key), "it is negative"));
            }
        }
        if bounds.max_latency == Some(Dur::ZERO) {
            return Err(Wrong::at(at("max_latency"), "it must be longer than zero"));
        }
        if let Some(region) = &bounds.region {
            name(&at("region"), region)?;
        }
        bounded(&at("residency"), bounds.residency.len())?;
        for (index, label) in bounds.residency.iter().enumerate() {
            name(&at("residency").item(index), label)?;
        }
        bounded(&at("capabilities"), bounds.capabilities.len())?;
        for (index, word) in bounds.capabilities.iter().enumerate() {
            if !Capability::FLAGS.contains(&word.as_str()) {
                let path = at("capabilities").item(index);
                let wrong = Wrong::at(path, format!("`{}` is not a capability", printable(word)));
                let known = || format!("capabilities are {}", Capability::FLAGS.join(", "));
                return Err(
                    wrong.hint(did_you_mean(word, Capability::FLAGS.iter().copied()).unwrap_or_else(known))
                );
            }
        }
        Ok(())
    }
}

fn bounded(path: &Path, length: usize) -> std::result::Result<(), Wrong> {
    if length > MAX_LIST {
        return Err(Wrong::at(path.clone(), format!("more than {MAX_LIST} entries")));
    }
    Ok(())
}

fn extensions(path: &Path, ids: &[String]) -> std::result::Result<(), Wrong> {
    bounded(path, ids.len())?;
    for (index, id) in ids.iter().enumerate() {
        extension(&path.item(index), id)?;
        if ids[..index].contains(id) {
            return Err(Wrong::at(path.item(index), format!("`{id}` is already in the route")));
        }
    }
    Ok(())
}

fn extension(path: &Path, id: &str) -> std::result::Result<(), Wrong> {
    check_prefixed(id, "ext.").map_err(|why| {
        Wrong::at(path.clone(), format!("`{}` is not the id of an extension: {why}", printable(id)))
            .hint("extensions are named like `ext.native` or `ext.docker`")
    })
}

fn name(path: &Path, name: &str) -> std::result::Result<(), Wrong> {
    if !is_place(name) {
        return Err(Wrong::at(path.clone(), format!("`{}` is not a name", printable(name)))
            .hint(format!("letters, digits, `.`, `_` and `-`, at most {MAX_NAME}")));
    }
    Ok(())
}

/// Whether a region or a label of residency can be called so.
pub(crate) fn is_place(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(plain)
}

/// Why this cannot be the id of an extension.
pub(crate) fn check_extension(id: &str) -> std::result::Result<(), &'static str> {
    check_prefixed(id, "ext.")
}
