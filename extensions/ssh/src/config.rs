//! What the extension can be told.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use sandboxer_core::HostDirectory;

/// Where hosts are looked up and where things are kept, here and there. There is no secret in it.
#[derive(Clone)]
pub struct Settings {
    pub hosts: Arc<dyn HostDirectory>,
    /// Sockets of connections are below it.
    pub state_dir: PathBuf,
    /// The folder for sandboxes on every host, absolute or `~/…`.
    pub root: String,
}

impl Settings {
    pub fn new(hosts: Arc<dyn HostDirectory>, state_dir: impl Into<PathBuf>) -> Self {
        Self { hosts, state_dir: state_dir.into(), root: "~/.sandboxer/sandboxes".into() }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("state_dir", &self.state_dir)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}
