//! `ext.vm-packer` with a real Packer and a real QEMU.

#![allow(clippy::unwrap_used, reason = "a test that fails shows where")]

mod attach;
mod builds;
mod common;
mod conformance;
mod machine;
