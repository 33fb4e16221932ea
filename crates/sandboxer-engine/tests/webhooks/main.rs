//! Webhooks over real HTTP: signed, guarded, retried, given up and sent again.

#![allow(clippy::unwrap_used, reason = "a helper of a test may panic like the test itself")]

mod answers;
mod endpoints;
mod given_up;
mod guarded;
mod hubs;
mod killed;
mod receiver;
mod standard;
mod support;
