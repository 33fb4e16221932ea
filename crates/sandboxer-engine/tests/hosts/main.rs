//! Placement on several hosts, what happens when one fails, and what is left on them.

#![allow(clippy::unwrap_used, reason = "a helper of a test may panic like the test itself")]

mod fixture;
mod rerouting;
mod stale;
