//! How long creates took: the last ones count, and the newer the more.
//!
//! A sample loses half of its weight in ten minutes. Since all of them do so at the same pace, the percentiles change
//! only with a new sample: they are worked out when one is added and are right for as long as none is.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::offer::OfferLatency;
use crate::duration::Dur;

/// The samples themselves, oldest first; only whoever adds one needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Window(Vec<(u32, i64)>);

/// What is known without looking at the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Digest {
    pub p50: Dur,
    pub p95: Dur,
    pub samples: u32,
    /// The weight of all samples at the moment of the newest one, which itself counts 1.
    pub weight: f64,
    pub updated_at: Timestamp,
}

impl Window {
    pub const LENGTH: usize = 64;
    pub const HALF_LIFE: Dur = Dur::from_secs(600);

    /// One more sample. A clock that went back makes old samples as new as this one, not newer.
    pub fn add(&mut self, took: Dur, now: Timestamp) -> Digest {
        let took = u32::try_from(took.as_millis()).unwrap_or(u32::MAX);
        if self.0.len() >= Self::LENGTH {
            self.0.drain(..=self.0.len() - Self::LENGTH);
        }
        self.0.push((took, now.as_millisecond()));
        self.digest(now)
    }

    fn digest(&self, now: Timestamp) -> Digest {
        let mut weighted: Vec<(u32, f64)> =
            self.0.iter().map(|(took, at)| (*took, decay(now.as_millisecond() - at))).collect();
        weighted.sort_by_key(|(took, _)| *took);
        let weight: f64 = weighted.iter().map(|(_, weight)| weight).sum();
        let at = |share: f64| {
            let mut below = 0.0;
            let found = weighted.iter().find(|(_, own)| {
                below += own;
                below >= weight * share - 1e-9
            });
            Dur::from_millis(found.or(weighted.last()).map_or(0, |(took, _)| u64::from(*took)))
        };
        Digest {
            p50: at(0.5),
            p95: at(0.95),
            samples: u32::try_from(self.0.len()).unwrap_or(u32::MAX),
            weight,
            updated_at: now,
        }
    }
}

/// What a sample of this age still weighs.
fn decay(age_ms: i64) -> f64 {
    0.5_f64.powf(age_ms.max(0) as f64 / Window::HALF_LIFE.as_millis() as f64)
}

impl Digest {
    /// So many samples are needed before anything is concluded from them.
    pub const FEW: u32 = 5;

    /// Enough samples, and not all of them long ago: together they still weigh as much as one new one.
    pub fn is_known(&self, now: Timestamp) -> bool {
        self.samples >= Self::FEW
            && self.weight * decay(now.as_millisecond() - self.updated_at.as_millisecond()) >= 1.0
    }

    pub fn shown(&self) -> OfferLatency {
        OfferLatency { p50: self.p50, p95: self.p95, samples: self.samples }
    }
}
