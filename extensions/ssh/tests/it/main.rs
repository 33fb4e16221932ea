//! `ext.ssh` over a real sshd.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;
mod faults;
mod native;
