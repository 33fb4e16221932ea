//! `ext.native`: the embedded default. Our own Linux runtime behind the extension contract, see `docs.md`.

mod backend;
mod config;
mod errors;
mod exec;
mod files;
mod host;
mod provision;
mod warm;

use std::sync::Arc;

use sandboxer_core::Registry;

pub use backend::Native;
pub use config::NativeConfig;

/// The id under which the extension is registered.
pub const ID: &str = "ext.native";

/// Adds the extension to a registry.
pub fn register(registry: &mut Registry, config: NativeConfig) {
    registry.register(Arc::new(Native::new(config)));
}
