//! The life of sandboxes.

pub(crate) mod create;
pub(crate) mod list;
pub(crate) mod one;
pub(crate) mod ttl;
