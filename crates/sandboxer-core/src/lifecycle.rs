//! The states of a sandbox and the legal edges between them.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};

/// Where a sandbox stands. `ready`: a reachability probe succeeded; `active`: something has run in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Requested,
    Provisioning,
    Ready,
    Active,
    Paused,
    Expired,
    Failed,
    Destroying,
    Destroyed,
}

impl State {
    pub const ALL: [Self; 9] = [
        Self::Requested,
        Self::Provisioning,
        Self::Ready,
        Self::Active,
        Self::Paused,
        Self::Expired,
        Self::Failed,
        Self::Destroying,
        Self::Destroyed,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Provisioning => "provisioning",
            Self::Ready => "ready",
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Expired => "expired",
            Self::Failed => "failed",
            Self::Destroying => "destroying",
            Self::Destroyed => "destroyed",
        }
    }

    /// The states that `self` may turn into. This is the whole lifecycle; nothing else decides.
    pub const fn next(self) -> &'static [Self] {
        match self {
            Self::Requested => &[Self::Provisioning, Self::Destroying],
            Self::Provisioning => &[Self::Ready, Self::Failed, Self::Destroying],
            Self::Ready => &[Self::Active, Self::Paused, Self::Expired, Self::Failed, Self::Destroying],
            Self::Active => &[Self::Paused, Self::Expired, Self::Failed, Self::Destroying],
            Self::Paused => &[Self::Ready, Self::Active, Self::Expired, Self::Failed, Self::Destroying],
            Self::Expired | Self::Failed => &[Self::Destroying],
            Self::Destroying => &[Self::Destroyed, Self::Failed],
            Self::Destroyed => &[],
        }
    }

    pub fn can_become(self, to: Self) -> bool {
        self.next().contains(&to)
    }

    /// The step to `to`, or the typed error that names both ends.
    pub fn step(self, to: Self) -> Result<Self, Error> {
        if self.can_become(to) {
            return Ok(to);
        }
        Err(Error::new(
            ErrorKind::IllegalState,
            format!("a sandbox that is {} cannot become {}", self.as_str(), to.as_str()),
        )
        .with_context("from", self.as_str())
        .with_context("to", to.as_str()))
    }

    /// Commands can run in it.
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::Ready | Self::Active)
    }

    /// Something may exist behind it.
    pub const fn is_living(self) -> bool {
        !matches!(self, Self::Destroyed)
    }

    /// Somebody is, or was when it crashed, in the middle of working on it.
    pub const fn is_in_flight(self) -> bool {
        matches!(self, Self::Requested | Self::Provisioning | Self::Destroying)
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for State {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let error = Error::new(
                ErrorKind::InvalidInput,
                format!("`{}` is not a state", crate::suggest::printable(text)),
            );
            match crate::suggest::did_you_mean(text, Self::ALL.map(Self::as_str)) {
                Some(hint) => error.with_hint(hint),
                None => error.with_hint(format!("one of {}", Self::ALL.map(Self::as_str).join(", "))),
            }
        })
    }
}

#[cfg(test)]
mod tests;
