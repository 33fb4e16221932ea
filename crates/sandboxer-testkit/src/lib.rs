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

pub mod conformance;
pub mod real;
