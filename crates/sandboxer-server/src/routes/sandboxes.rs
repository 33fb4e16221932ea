//! The life of sandboxes.

pub(crate) mod create;
pub(crate) mod fork;
pub(crate) mod list;
pub(crate) mod one;
pub(crate) mod pause;
pub(crate) mod sync;
mod telling;
pub(crate) mod ttl;
