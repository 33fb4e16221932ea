//! Fixtures shared by the tests: an extension that does as it is told, a clock that stands still, a workshop that puts
//! an engine together over a real store.

mod clock;
mod scripted;
mod workshop;

pub use clock::TestClock;
pub use scripted::{Script, Scripted};
pub use workshop::Workshop;
