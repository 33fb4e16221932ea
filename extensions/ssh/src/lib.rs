//! `ext.ssh`: a directory on a host that is reached by SSH, see `docs.md`.

mod backend;
mod check;
mod config;
mod exec;
mod native;
mod pool;
mod provision;
mod remains;
mod report;
mod sandbox;

use std::sync::Arc;

use sandboxer_core::Registry;

pub use backend::Ssh;
pub use config::Settings;

/// The id under which the extension is registered.
pub const ID: &str = "ext.ssh";

/// Adds the extension to a registry.
pub fn register(registry: &mut Registry, settings: Settings) {
    registry.register(Arc::new(Ssh::new(settings)));
}
