//! `ext.docker`: hardened containers over the engine's API, see `docs.md`.

mod archive;
mod backend;
mod background;
mod background_io;
mod check;
mod client;
mod config;
mod controls;
mod create;
mod errors;
mod exec;
mod files;
mod hijack;
mod image;
mod inside;
mod labels;
mod locks;
mod mounts;
mod outside;
mod owner;
mod pause;
mod port;
mod provision;
mod pump;
mod ready;
mod remains;
mod seed;
mod signal;
mod snapshot;
mod stat;
mod status;

use std::sync::Arc;

use sandboxer_core::Registry;

pub use backend::Docker;
pub use config::Settings;

/// The id under which the extension is registered.
pub const ID: &str = "ext.docker";

/// Adds the extension to a registry.
pub fn register(registry: &mut Registry, settings: Settings) {
    registry.register(Arc::new(Docker::new(settings)));
}
