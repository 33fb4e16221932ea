//! Why something is not used now, and when that may have changed.

use jiff::Timestamp;

use crate::duration::Dur;

/// Against one candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: String,
    /// Absent where waiting changes nothing.
    pub again_at: Option<Timestamp>,
}

impl Refusal {
    /// When a place is free again, or a backend works again, nobody knows: this is often enough to ask.
    pub const SOON: Dur = Dur::from_secs(10);

    pub fn for_good(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), again_at: None }
    }

    pub fn until(again_at: Timestamp, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), again_at: Some(again_at) }
    }

    /// What is there is taken by others.
    pub fn full(now: Timestamp, reason: impl Into<String>) -> Self {
        Self::until(Self::SOON.after(now), reason)
    }
}
