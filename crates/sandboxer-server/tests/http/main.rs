//! The server over real connections. One binary, so that it is linked once.

#![allow(clippy::unwrap_used, reason = "a test that finds something else than it expects ends there")]

mod auth;
mod basics;
mod credits;
mod document;
mod events;
mod execs;
mod files;
mod guide;
mod hostile;
mod hosts;
mod idempotency;
mod keys;
mod ports;
mod route;
mod shutdown;
mod snapshots;
mod streams;
mod support;
mod webhooks;
mod websocket;
