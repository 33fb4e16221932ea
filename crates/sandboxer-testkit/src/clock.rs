//! Time that moves only when a test moves it.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use sandboxer_core::Dur;
use sandboxer_engine::clock::Clock;

#[derive(Debug)]
pub struct TestClock(Mutex<Hands>);

#[derive(Debug)]
struct Hands {
    now: Timestamp,
    /// How far it goes on with each look at it.
    step: Dur,
}

impl Default for TestClock {
    fn default() -> Self {
        let now = Timestamp::from_second(1_800_000_000).unwrap_or(Timestamp::UNIX_EPOCH);
        Self(Mutex::new(Hands { now, step: Dur::ZERO }))
    }
}

impl TestClock {
    pub fn advance(&self, by: Dur) {
        self.turn(|hands| hands.now = by.after(hands.now));
    }

    /// The clock is put back, as clocks sometimes are.
    pub fn put_back(&self, by: Dur) {
        self.turn(|hands| hands.now = hands.now.checked_sub(by.as_std()).unwrap_or(hands.now));
    }

    /// From now on no two looks at it tell the same, as with a real one.
    pub fn step_with_each_look(&self, by: Dur) {
        self.turn(|hands| hands.step = by);
    }

    fn turn<T>(&self, how: impl FnOnce(&mut Hands) -> T) -> T {
        how(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        self.turn(|hands| {
            let now = hands.now;
            hands.now = hands.step.after(now);
            now
        })
    }
}
