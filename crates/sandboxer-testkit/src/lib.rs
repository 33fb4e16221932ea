//! Fixtures shared by the tests: an extension that does as it is told, a clock that stands still, a workshop that puts
//! an engine together over a real store.

#[cfg(feature = "workshop")]
mod clock;
mod fleet;
mod scripted;
#[cfg(feature = "workshop")]
pub mod workshop;

#[cfg(feature = "workshop")]
pub use clock::TestClock;
pub use fleet::{Fleet, HostScript};
pub use scripted::{Script, Scripted};
#[cfg(feature = "workshop")]
pub use workshop::Workshop;

/// Waits until something is so, for half a minute: a test that guesses how long it takes fails on a busy machine.
pub async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !is_so() {
        assert!(std::time::Instant::now() < end, "not within half a minute: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

pub mod conformance;
pub mod real;
