//! Extensions that are programs of their own.

#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

mod common;
mod conformance;
mod docs;
mod faults;
