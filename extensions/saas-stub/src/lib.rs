//! `ext.saas-stub`: a provider that only pretends. It meters like a hosted one, is slow and fails as it is told, and runs
//! its sandboxes on another extension underneath, see `docs.md`.

mod backend;
mod behaviour;
mod config;
mod faults;
mod provider;
mod provision;
mod record;
mod teardown;
mod usage;

use std::sync::Arc;

use sandboxer_core::Registry;

pub use backend::SaasStub;
pub use behaviour::{Behaviour, CallFault, CreateFault};
pub use config::{Backing, Settings};
pub use record::Record;

/// The id under which the extension is registered.
pub const ID: &str = "ext.saas-stub";

/// Adds the extension to a registry.
pub fn register(registry: &mut Registry, settings: Settings) {
    registry.register(Arc::new(SaasStub::new(settings)));
}
