//! Samples and what is said about them.

use std::time::Duration;

use serde_json::{Value, json};

/// Durations of one measured thing, in the order in which they were taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn sorted(&self) -> Vec<Duration> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted
    }

    /// Without the given share at each end, as leaderboards do it.
    pub(crate) fn trimmed(&self, percent: usize) -> Self {
        let sorted = self.sorted();
        let cut = sorted.len() * percent / 100;
        Self(sorted[cut..sorted.len() - cut].to_vec())
    }

    pub(crate) fn summary(&self) -> Summary {
        let sorted = self.sorted();
        Summary {
            n: sorted.len(),
            min: at(&sorted, 0),
            p50: at(&sorted, 50),
            p95: at(&sorted, 95),
            p99: at(&sorted, 99),
            max: at(&sorted, 100),
        }
    }
}

impl FromIterator<Duration> for Samples {
    fn from_iter<I: IntoIterator<Item = Duration>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

/// The smallest sample that at least this share of all samples does not exceed (nearest rank), in milliseconds.
fn at(sorted: &[Duration], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).clamp(1, sorted.len().max(1));
    sorted.get(rank - 1).map_or(f64::NAN, |sample| sample.as_secs_f64() * 1e3)
}

/// Milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) n: usize,
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Summary {
    pub(crate) fn to_json(self) -> Value {
        json!({
            "n": self.n, "unit": "ms", "min": self.min, "p50": self.p50, "p95": self.p95, "p99": self.p99,
            "max": self.max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upto(n: u64) -> Samples {
        (1..=n).rev().map(Duration::from_millis).collect()
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let summary = upto(200).summary();
        assert_eq!((summary.p50, summary.p95, summary.p99), (100.0, 190.0, 198.0));
        assert_eq!((summary.min, summary.max, summary.n), (1.0, 200.0, 200));
    }

    #[test]
    fn one_sample_is_every_percentile() {
        let summary = upto(1).summary();
        assert_eq!((summary.min, summary.p50, summary.p99), (1.0, 1.0, 1.0));
    }

    #[test]
    fn trimming_takes_from_both_ends() {
        let summary = upto(100).trimmed(5).summary();
        assert_eq!((summary.n, summary.min, summary.max), (90, 6.0, 95.0));
    }
}
