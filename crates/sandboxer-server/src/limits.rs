//! The bounds of the server: sizes, times, counts and rates. Nothing that a caller can grow is without one.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use sandboxer_core::{ErrorKind, KeyId};

use crate::error::ApiError;

#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a JSON body.
    pub json_body: usize,
    /// Bytes of a file or an archive on its way in.
    pub upload: u64,
    /// Bytes of each stream that a waiting exec keeps; what is between head and tail is cut.
    pub kept_output: usize,
    /// Connections at once; more wait in the kernel's queue.
    pub connections: usize,
    /// Readers of the event stream at once.
    pub event_streams: usize,
    /// Time for a request's head to arrive; also how long an idle connection is kept.
    pub header_timeout: Duration,
    /// Time between two pieces of an upload.
    pub upload_idle: Duration,
    /// Time for requests in flight to finish after the server was told to stop.
    pub drain: Duration,
    /// Requests a second of one key, or of one address without a key. The burst is twice as much.
    pub requests_per_second: NonZeroU32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            json_body: 1 << 20,
            upload: 4 << 30,
            kept_output: 1 << 20,
            connections: 4_096,
            event_streams: 256,
            header_timeout: Duration::from_secs(60),
            upload_idle: Duration::from_secs(60),
            drain: Duration::from_secs(30),
            requests_per_second: NonZeroU32::new(10_000).unwrap_or(NonZeroU32::MAX),
        }
    }
}

/// Whose bucket a request draws from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Payer {
    Key(KeyId),
    Address(IpAddr),
}

/// A token bucket for each key and each address.
pub(crate) struct Buckets(DefaultKeyedRateLimiter<Payer>);

impl Buckets {
    pub(crate) fn new(per_second: NonZeroU32) -> Self {
        let burst = per_second.saturating_mul(NonZeroU32::MIN.saturating_add(1));
        Self(RateLimiter::keyed(Quota::per_second(per_second).allow_burst(burst)))
    }

    pub(crate) fn draw(&self, payer: Payer) -> Result<(), ApiError> {
        self.0.check_key(&payer).map_err(|not_until| {
            let wait = not_until.wait_time_from(DefaultClock::default().now());
            ApiError::new(ErrorKind::RateLimited, "too many requests")
                .hint("slow down; `Retry-After` says how long to wait")
                .retry_after(wait.as_secs() + 1)
        })
    }

    /// Forgets the buckets that are full again, so that passing strangers cost no memory.
    pub(crate) fn forget_idle(&self) {
        self.0.retain_recent();
        self.0.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_empties_for_its_payer_alone() {
        let buckets = Buckets::new(NonZeroU32::new(5).unwrap());
        let (one, other) = (Payer::Address([127, 0, 0, 1].into()), Payer::Key(KeyId::generate()));
        for _ in 0..10 {
            buckets.draw(one).unwrap();
        }
        assert_eq!(buckets.draw(one).unwrap_err().error().kind(), ErrorKind::RateLimited);
        buckets.draw(other).unwrap();
    }
}
