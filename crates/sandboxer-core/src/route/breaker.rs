//! Who is left alone after failing, and for how long: one breaker for an extension, a host and a class of trouble.
//!
//! Closed, it lets everything pass. After enough failures in a row it opens, for longer each time. When that is over it
//! is half open: one create may try, while the others still go elsewhere. Its success closes the breaker.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::duration::Dur;
use crate::error::Class;

/// What was remembered about one class of failures in one place. Absent is closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    pub class: Class,
    /// In a row.
    pub failures: u32,
    pub last_at: Timestamp,
    /// Set once it has opened.
    pub until: Option<Timestamp>,
    /// Somebody tries; nobody else does before this moment.
    pub probe_until: Option<Timestamp>,
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    Closed,
    Open,
    HalfOpen,
}

/// How patient we are with a class: failures until it opens, the first rest, the longest.
struct Patience {
    failures: u32,
    first: Dur,
    longest: Dur,
}

const fn patience(class: Class) -> Patience {
    const LONG: Dur = Dur::from_secs(6 * 3_600);
    const SHORT: Dur = Dur::from_secs(600);
    let (failures, first, longest) = match class {
        // Nothing of ours will pay a bill or renew a key there: somebody has to.
        Class::Auth => (1, 600, LONG),
        Class::Payment => (1, 900, LONG),
        Class::Quota | Class::Capacity => (1, 30, SHORT),
        Class::Timeout | Class::Network => (2, 30, SHORT),
        Class::Backend => (3, 30, SHORT),
    };
    Patience { failures, first: Dur::from_secs(first), longest }
}

impl Breaker {
    /// Failures further apart than this are not in a row, as long as the breaker has not opened.
    pub const WINDOW: Dur = Dur::from_secs(600);
    /// No backend is left alone for longer, whatever it says.
    pub const LONGEST_RETRY_AFTER: Dur = Dur::from_secs(86_400);
    const LONGEST_REASON: usize = 300;

    /// After one more failure.
    pub fn after_failure(
        before: Option<&Self>,
        class: Class,
        reason: &str,
        retry_after: Option<Dur>,
        now: Timestamp,
    ) -> Self {
        let in_a_row = before.filter(|old| old.until.is_some() || Self::WINDOW.after(old.last_at) > now);
        let failures = in_a_row.map_or(0, |old| old.failures).saturating_add(1);
        let Patience { failures: most, first, longest } = patience(class);
        let rest = match retry_after {
            // Its own word counts, even if it is sooner than we would come back.
            Some(span) => Some(span.clamp(Dur::from_secs(1), Self::LONGEST_RETRY_AFTER)),
            None if failures < most => None,
            None => {
                let doubled = first.as_millis().saturating_mul(1 << (failures - most).min(16));
                Some(Dur::from_millis(doubled).min(longest))
            }
        };
        // A failure that was under way when it opened does not close it again.
        let until = rest.map(|rest| rest.after(now)).max(in_a_row.and_then(|old| old.until));
        Self {
            class,
            failures,
            last_at: now,
            until,
            probe_until: None,
            reason: reason.chars().take(Self::LONGEST_REASON).collect(),
        }
    }

    pub fn state(&self, now: Timestamp) -> BreakerState {
        match self.until {
            None => BreakerState::Closed,
            Some(until) if until > now => BreakerState::Open,
            Some(_) => BreakerState::HalfOpen,
        }
    }

    /// Half open, and somebody is trying already.
    pub fn is_probed(&self, now: Timestamp) -> bool {
        self.probe_until.is_some_and(|until| until > now)
    }
}
