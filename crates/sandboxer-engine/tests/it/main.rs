//! The life of a sandbox, from create to its end.

#![allow(clippy::unwrap_used, reason = "a helper of a test may panic like the test itself")]

mod checkpoints;
mod lifecycle;
mod recovery;
mod sharing;
mod state_hub;
mod workspace;
