//! What goes into an archive and what a sync would do.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod archives;
mod plan;
