//! Commands in a sandbox.

pub(crate) mod input;
pub(crate) mod logs;
pub(crate) mod query;
pub(crate) mod record;
pub(crate) mod run;
mod stream;
pub(crate) mod websocket;
