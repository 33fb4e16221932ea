//! The real binary, from outside. Every test has a home of its own and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a helper of a test may panic like the test itself")]

mod copying;
mod credits;
mod docker;
mod docs;
mod estimate;
mod execs;
mod faults;
mod help;
mod hosts;
mod integrations;
mod lifecycle;
mod parity;
mod ports;
mod process;
mod registry;
mod route;
mod streams;
mod support;
mod terminal;
mod warm;
mod webhooks;
mod workspace;
