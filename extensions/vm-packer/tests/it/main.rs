//! `ext.vm-packer` with a real Packer and a real QEMU. The conformance suite is a program of its own, since it measures how
//! much a machine does in a time.

#![allow(clippy::unwrap_used, reason = "a test that fails shows where")]

mod attach;
#[path = "../common/mod.rs"]
mod common;
mod machine;
