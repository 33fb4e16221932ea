//! What we send to an extension at most, whatever it would take: said by the operator, kept by us.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use crate::duration::Dur;
use crate::error::{Error, ErrorKind, Result};
use crate::extension::Location;
use crate::profile::{check_extension, is_place};
use crate::suggest::printable;

/// `[extensions."ext.x"]` of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExtensionLimits {
    /// Sandboxes that live at once.
    pub max_sandboxes: Option<u32>,
    /// Creates that are under way at once.
    pub max_concurrent_creates: Option<u32>,
    pub creates_per_second: Option<f64>,
    /// Where the account at this provider is; replaces what the extension says about itself.
    pub regions: Vec<String>,
    pub residency: Vec<String>,
}

/// What of them is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    pub living: u32,
    /// Of these, still being established.
    pub creating: u32,
    /// Begun within [`ExtensionLimits::window`].
    pub recent: u32,
    /// When the oldest of these was begun.
    pub since: Option<Timestamp>,
}

impl ExtensionLimits {
    pub fn validate(&self, extension: &str) -> Result<()> {
        check_extension(extension).map_err(|why| {
            let said = printable(extension);
            Error::new(
                ErrorKind::InvalidInput,
                format!("`extensions`: `{said}` is not the id of an extension: {why}"),
            )
            .with_hint("extensions are named like `ext.native` or `ext.docker`")
        })?;
        for (key, names) in [("regions", &self.regions), ("residency", &self.residency)] {
            if let Some(name) = names.iter().find(|name| !is_place(name)) {
                let message = format!("`{key}` of `{extension}`: `{}` is not a name", printable(name));
                return Err(Error::new(ErrorKind::InvalidInput, message)
                    .with_hint("letters, digits, `.`, `_` and `-`, at most 128"));
            }
        }
        let is_rate = |rate: f64| rate.is_finite() && (0.001..=1_000_000.0).contains(&rate);
        if self.creates_per_second.is_some_and(|rate| !is_rate(rate)) {
            let message =
                format!("`creates_per_second` of `{extension}` is not a number between 0.001 and 1000000");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        Ok(())
    }

    /// Whether anything is limited at all.
    pub fn is_limited(&self) -> bool {
        self.max_sandboxes.is_some()
            || self.max_concurrent_creates.is_some()
            || self.creates_per_second.is_some()
    }

    /// The span in which creates are counted for the rate: a second, or longer for less than one a second.
    pub fn window(&self) -> Dur {
        let rate = self.creates_per_second.filter(|rate| *rate > 0.0).unwrap_or(1.0);
        Dur::from_millis(((1_000.0 / rate).ceil() as u64).max(1_000))
    }

    /// Which limit one more create would break.
    pub fn refuse(&self, taken: Slots, now: Timestamp) -> Option<Refusal> {
        if let Some(most) = self.max_sandboxes.filter(|most| taken.living >= *most) {
            let sandboxes = if most == 1 { "sandbox" } else { "sandboxes" };
            return Some(full(most, now, format!("{} of {most} {sandboxes}", taken.living)));
        }
        if let Some(most) = self.max_concurrent_creates.filter(|most| taken.creating >= *most) {
            let creates = if most == 1 { "create is" } else { "creates are" };
            return Some(full(most, now, format!("{} of {most} {creates} under way", taken.creating)));
        }
        let rate = self.creates_per_second?;
        let most = if rate < 1.0 { 1 } else { rate.min(f64::from(u32::MAX)) as u32 };
        (taken.recent >= most).then(|| {
            let creates = if rate == 1.0 { "create" } else { "creates" };
            let reason = format!("at its limit here: {rate} {creates} a second");
            Refusal::until(self.window().after(taken.since.unwrap_or(now)), reason)
        })
    }

    /// What the operator says about the place, or what the extension says about itself.
    pub fn location(&self, own: Location) -> Location {
        let choose = |said: &Vec<String>, own| if said.is_empty() { own } else { said.clone() };
        Location {
            regions: choose(&self.regions, own.regions),
            residency: choose(&self.residency, own.residency),
        }
    }
}

/// A limit that is reached. One of zero stays so.
fn full(most: u32, now: Timestamp, taken: String) -> Refusal {
    let reason = format!("at its limit here: {taken}");
    if most == 0 { Refusal::for_good(reason) } else { Refusal::full(now, reason) }
}
