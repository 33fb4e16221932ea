//! `ext.compose-ssh`: the compose stack of a repository on a placement host, see `docs.md`.

mod backend;
mod bundle;
mod config;
mod controls;
mod exec;
mod file;
mod files;
mod host;
mod inspect;
mod judge;
mod logs;
mod port;
mod provision;
mod rewrite;
mod site;
mod snapshot;
mod teardown;

use std::sync::Arc;

use sandboxer_core::Registry;

pub use backend::ComposeSsh;
pub use config::Settings;

/// The id under which the extension is registered.
pub const ID: &str = "ext.compose-ssh";

/// Adds the extension to a registry.
pub fn register(registry: &mut Registry, settings: Settings) {
    registry.register(Arc::new(ComposeSsh::new(settings)));
}
