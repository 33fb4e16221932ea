//! Money: what is held, what is metered, what is charged, and that it happens once.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod documents;
mod fixture;
mod holds;
mod meters;
mod model;
mod own_keys;
mod statements;
