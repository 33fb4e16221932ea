//! The native runtime on a real kernel.

#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

#[path = "../common/mod.rs"]
mod common;
mod degraded;
mod escape;
mod exec;
mod files;
mod lifecycle;
mod port;
mod workspace;
