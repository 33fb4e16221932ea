//! `ext.docker` on a real engine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod faults;
mod hardened;
