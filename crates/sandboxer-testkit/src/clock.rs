//! Time that moves only when a test moves it.

use std::sync::Mutex;

use jiff::Timestamp;
use sandboxer_core::Dur;
use sandboxer_engine::clock::Clock;

#[derive(Debug)]
pub struct TestClock(Mutex<Timestamp>);

impl Default for TestClock {
    fn default() -> Self {
        Self(Mutex::new(Timestamp::from_second(1_800_000_000).unwrap_or(Timestamp::UNIX_EPOCH)))
    }
}

impl TestClock {
    pub fn advance(&self, by: Dur) {
        let mut now = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *now = by.after(*now);
    }

    /// The clock is put back, as clocks sometimes are.
    pub fn put_back(&self, by: Dur) {
        let mut now = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *now = now.checked_sub(by.as_std()).unwrap_or(*now);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
