//! Machines: each a folder with its overlay disk, its keys and its processes.

mod accelerator;
mod boot;
pub(crate) mod console;
mod controls;
mod identity;
mod launch;
mod machine;
mod place;
pub(crate) mod process;
mod qmp;
mod record;
mod resources;
mod seed;
mod snapshot;

pub(crate) use accelerator::Accelerator;
pub(crate) use boot::{Boot, boot};
pub(crate) use place::{Place, Places, check_tag};
pub(crate) use qmp::Qmp;
pub(crate) use record::Record;
pub(crate) use resources::{Room, Size};
pub(crate) use snapshot::{Snapshots, taken};
