//! Real stacks on a real engine, here and over SSH.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod conformance;
mod faults;
mod refusals;
mod ssh;
mod stack;
mod support;
