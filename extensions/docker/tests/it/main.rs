//! `ext.docker` on a real engine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod conformance;
mod faults;
mod hardened;
