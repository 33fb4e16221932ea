//! `ext.vm-packer` with a real Packer and a real QEMU.

#![allow(clippy::unwrap_used, reason = "a test that fails shows where")]

mod attach;
#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod machine;
