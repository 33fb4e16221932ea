//! Where the engine is found.

use std::path::{Path, PathBuf};

use sandboxer_core::{Error, ErrorKind, Result};

/// Where docker keeps its socket when nothing else is said.
const USUAL_SOCKET: &str = "/var/run/docker.sock";

/// What the extension is told when it is registered.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `unix:///…`; without it `DOCKER_HOST`, then the usual socket.
    pub docker_host: Option<String>,
    /// Our own state, which no sandbox may mount.
    pub state_dir: PathBuf,
}

impl Settings {
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self { docker_host: None, state_dir: state_dir.into() }
    }

    #[must_use]
    pub fn with_docker_host(mut self, docker_host: impl Into<String>) -> Self {
        self.docker_host = Some(docker_host.into());
        self
    }

    /// The socket of the engine. Only sockets of this machine: a sandbox of this extension is on the local host.
    pub(crate) fn socket(&self) -> Result<PathBuf> {
        let said = self.docker_host.clone().or_else(|| std::env::var("DOCKER_HOST").ok());
        let Some(said) = said.filter(|said| !said.is_empty()) else { return Ok(USUAL_SOCKET.into()) };
        match said.strip_prefix("unix://") {
            Some(path) if Path::new(path).is_absolute() => Ok(path.into()),
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                format!("`{}` is not a docker host that can be used", sandboxer_core::suggest::printable(&said)),
            )
            .with_hint("DOCKER_HOST is `unix:///path/of/docker.sock` here; for another machine use ext.compose-ssh or ext.ssh")),
        }
    }
}
