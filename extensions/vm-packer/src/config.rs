//! What the extension can be told.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use sandboxer_core::HostDirectory;

/// Where images and machines live on disk, and which programs make them. There is no secret in it.
#[derive(Clone)]
pub struct Settings {
    /// Where `--input vm=NAME` is looked up.
    pub hosts: Arc<dyn HostDirectory>,
    /// Images and machines of this extension, and nothing else.
    pub state_dir: PathBuf,
    /// Packer's executable; without it the one in `PATH`.
    pub packer: Option<PathBuf>,
    /// QEMU's executable; without it the one in `PATH`.
    pub qemu: Option<PathBuf>,
}

impl Settings {
    pub fn new(hosts: Arc<dyn HostDirectory>, state_dir: impl Into<PathBuf>) -> Self {
        Self { hosts, state_dir: state_dir.into(), packer: None, qemu: None }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("state_dir", &self.state_dir)
            .field("packer", &self.packer)
            .field("qemu", &self.qemu)
            .finish_non_exhaustive()
    }
}
