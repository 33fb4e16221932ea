//! What the extension can be told.

use std::path::PathBuf;
use std::sync::Arc;

use sandboxer_core::HostDirectory;

/// The label of a host that says where its engine listens, when that is not the default: `unix:///run/user/1000/docker.sock`.
pub(crate) const DOCKER_HOST_LABEL: &str = "docker_host";

/// There is no secret in it.
#[derive(Clone)]
pub struct Settings {
    pub hosts: Arc<dyn HostDirectory>,
    /// Connections, bundles that are being packed, and the stacks of this machine.
    pub state_dir: PathBuf,
    /// The engine of this machine; what `docker` itself would use when absent.
    pub docker_host: Option<String>,
}

impl Settings {
    /// The engine of this machine is the one that `docker` itself would use.
    pub fn new(hosts: Arc<dyn HostDirectory>, state_dir: impl Into<PathBuf>) -> Self {
        Self { hosts, state_dir: state_dir.into(), docker_host: None }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("state_dir", &self.state_dir)
            .field("docker_host", &self.docker_host)
            .finish_non_exhaustive()
    }
}
