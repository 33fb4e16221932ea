//! One sandbox on its host: where it is, and which of its paths are which of the host's.

use std::collections::BTreeMap;

use sandboxer_core::extension::Handle;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::{Files, Guard, Remote};
use serde::{Deserialize, Serialize};

use crate::native::{self, Native};

/// What the workspace is called in every sandbox.
pub(crate) const WORKSPACE: &str = "/workspace";
/// Every process of a sandbox has it in its environment.
pub(crate) const MARKER: &str = "SANDBOXER_TAG";

/// What a handle keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Data {
    /// The sandbox's directory on the host, absolute.
    pub(crate) dir: String,
    /// Visible to every command.
    pub(crate) variables: BTreeMap<String, String>,
    /// The sandbox is one of the host's own `sandboxer`; otherwise a plain directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) native: Option<Native>,
}

/// A sandbox and the way to it.
#[derive(Clone)]
pub(crate) struct Sandbox {
    pub(crate) remote: Remote,
    pub(crate) tag: String,
    pub(crate) data: Data,
}

impl Sandbox {
    pub(crate) fn new(remote: Remote, handle: &Handle) -> Result<Self> {
        let data = serde_json::from_value(handle.data.clone()).map_err(|source| {
            Error::new(ErrorKind::Internal, "the handle is not one of this extension").with_source(source)
        })?;
        Ok(Self { remote, tag: handle.tag.clone(), data })
    }

    /// Its workspace, as commands see it.
    pub(crate) fn workspace(&self) -> String {
        match self.data.native {
            Some(_) => WORKSPACE.to_owned(),
            None => format!("{}{WORKSPACE}", self.data.dir),
        }
    }

    /// Where its commands run.
    pub(crate) fn shell(&self) -> Remote {
        match &self.data.native {
            Some(native) => self.remote.within(native.entry(&self.data.dir)),
            None => self.remote.clone(),
        }
    }

    pub(crate) fn guard(&self) -> Guard {
        Guard::new(&self.remote, &self.data.dir)
    }

    pub(crate) fn files(&self) -> Files {
        self.shell().files(self.workspace())
    }

    /// A path of the sandbox, relative to its workspace. There are no other files of its own.
    pub(crate) fn inside<'a>(&self, path: &'a str) -> Result<&'a str> {
        sandboxer_core::files::validate_path(path)?;
        if !path.starts_with('/') {
            return Ok(path);
        }
        let below = |root: &str| {
            let rest = path.strip_prefix(root)?;
            match rest.trim_start_matches('/') {
                "" => Some("."),
                inner if rest.starts_with('/') => Some(inner),
                _ => None,
            }
        };
        below(&self.workspace()).or_else(|| below(WORKSPACE)).ok_or_else(|| {
            let path = sandboxer_core::suggest::printable(path);
            Error::new(ErrorKind::Denied, format!("`{path}` is not in the workspace"))
                .with_hint(format!("the files of this sandbox are below {WORKSPACE}"))
        })
    }

    /// The directory of the host for a working directory. What is not of the workspace is the host's own: there is no
    /// boundary between.
    pub(crate) fn directory(&self, cwd: Option<&str>) -> String {
        match cwd {
            None => self.workspace(),
            Some(path) => match self.inside(path) {
                Ok(".") => self.workspace(),
                Ok(inner) => format!("{}/{inner}", self.workspace()),
                Err(_) => path.to_owned(),
            },
        }
    }

    /// An error of one of its operations; when the sandbox itself is gone, that is what is said.
    pub(crate) async fn explain(&self, error: Error) -> Error {
        let alive = match &self.data.native {
            Some(native) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::BackendFailed) => {
                native::is_alive(self, native).await
            }
            None if error.kind() == ErrorKind::NotFound => self.guard().is_alive().await,
            _ => return error,
        };
        if matches!(alive, Ok(false)) { gone(&self.tag) } else { error }
    }
}

pub(crate) fn gone(tag: &str) -> Error {
    Error::new(ErrorKind::SandboxNotFound, format!("{tag} is not on its host any more"))
}

/// A tag becomes a file name on the host.
pub(crate) fn check_tag(tag: &str) -> Result<()> {
    let plain = tag.len() <= 80
        && tag.starts_with(|c: char| c.is_ascii_lowercase())
        && tag.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-');
    if plain {
        return Ok(());
    }
    let tag = sandboxer_core::suggest::printable(tag);
    Err(Error::new(ErrorKind::InvalidInput, format!("`{tag}` is not a tag")))
}
