//! When each sandbox was last written down as alive, so that it is not written at every look.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use sandboxer_core::{Dur, SandboxId};

/// More than this are forgotten, which costs one write each.
const MOST: usize = 16_384;

#[derive(Default)]
pub(crate) struct Signs(Mutex<HashMap<SandboxId, Timestamp>>);

impl Signs {
    /// Whether a sign of life should be written now; if so it counts as written.
    pub(crate) fn is_due(&self, id: SandboxId, now: Timestamp, every: Dur) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A clock that went back makes it due as well.
        if known.get(&id).is_some_and(|last| *last <= now && every.after(*last) > now) {
            return false;
        }
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(id, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_too_often_and_after_a_clock_that_went_back() {
        let (signs, id) = (Signs::default(), SandboxId::generate());
        let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
        let every = Dur::from_secs(5);
        assert!(signs.is_due(id, at(0), every));
        assert!(!signs.is_due(id, at(4), every));
        assert!(signs.is_due(id, at(5), every));
        assert!(signs.is_due(id, at(-100), every));
    }
}
