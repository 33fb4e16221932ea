//! `ext.vm-packer`: virtual machines. It builds an image with Packer and boots it under QEMU, or puts a workspace on a
//! machine that is already running, see `docs.md`.

mod attach;
mod backend;
mod check;
mod config;
mod deadline;
mod files;
mod guest;
mod image;
mod machine_ops;
mod machines;
mod tools;
mod vm;

use std::sync::Arc;

use sandboxer_core::Registry;

pub use backend::VmPacker;
pub use config::Settings;

/// The id under which the extension is registered.
pub const ID: &str = "ext.vm-packer";

/// Adds the extension to a registry.
pub fn register(registry: &mut Registry, settings: Settings) {
    registry.register(Arc::new(VmPacker::new(settings)));
}
