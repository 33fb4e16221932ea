//! The extension contract: an adapter to one backend reports facts, the engine decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::capability::Capability;
use crate::duration::Dur;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::{BoxRead, ExecInfo, ExecSession, ExecSpec, LogChunk, LogStream};
use crate::files::FileInfo;
use crate::id::{ExecId, SandboxId};
use crate::isolation::{Control, IsolationLevel};
use crate::spec::SandboxSpec;

/// What an extension is, without asking its backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Description {
    /// `ext.native`.
    pub id: String,
    pub summary: String,
    pub capability: Capability,
    /// `self-hosted` or `metered`.
    pub pricing: String,
    /// Configuration keys and what they mean.
    pub configuration: BTreeMap<String, String>,
}

/// Whether the backend can be used now, and what is missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CheckReport {
    pub ok: bool,
    pub items: Vec<CheckItem>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CheckItem {
    pub name: String,
    pub ok: bool,
    /// Nothing works without it.
    pub required: bool,
    pub detail: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Everything an extension gets to establish one sandbox.
#[derive(Clone, Debug)]
pub struct ProvisionRequest {
    pub sandbox_id: SandboxId,
    /// The mark that finds it again; a second provision with the same tag returns the first one's handle.
    pub tag: String,
    pub spec: SandboxSpec,
    pub host: String,
    /// The backend ends the sandbox by itself at this moment, whoever lives then.
    pub expires_at: Timestamp,
    pub idle_reap: Option<Dur>,
}

/// What the extension needs to find the sandbox again, and what it enforced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handle {
    pub tag: String,
    pub effective: IsolationLevel,
    pub controls: Vec<Control>,
    /// A required control was waived by `allow_degraded`.
    pub degraded: bool,
    /// The extension's own words; nobody else reads them.
    pub data: serde_json::Value,
}

/// How a consumer reaches the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Reachability {
    /// `exec` (through our API), `ssh`, `url` …
    pub method: String,
    /// The endpoint in the method's own form.
    pub endpoint: String,
    /// How the probe showed that it answers.
    pub probe: String,
}

/// What a teardown removed and what it could not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CleanupReport {
    pub removed: Vec<String>,
    pub left: Vec<Leftover>,
}

impl CleanupReport {
    pub fn is_clean(&self) -> bool {
        self.left.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Leftover {
    pub what: String,
    pub reason: String,
}

/// One thing of ours that the backend still has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub tag: String,
    /// It works; otherwise only its remains are there.
    pub alive: bool,
}

/// Where a sandbox stands according to its backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BackendStatus {
    pub alive: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Extension-specific facts for `inspect sandbox`.
    #[schema(value_type = Object)]
    pub detail: serde_json::Value,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Usage {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_usec: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

/// An adapter to one backend. Optional operations answer `unsupported` unless the capability says otherwise.
#[async_trait]
pub trait Extension: Send + Sync + 'static {
    fn describe(&self) -> Description;

    /// What is there and what is missing, without changing anything.
    async fn check(&self) -> Result<CheckReport>;

    /// Idempotent on the tag.
    async fn provision(&self, request: ProvisionRequest) -> Result<Handle>;

    /// Proves that the sandbox answers.
    async fn wait_ready(&self, handle: &Handle) -> Result<Reachability>;

    /// Removes it and everything that belongs to the tag. Idempotent; works without a handle after a crash.
    async fn teardown(&self, tag: &str, handle: Option<&Handle>) -> Result<CleanupReport>;

    /// Everything of ours whose tag starts so, alive or not.
    async fn list(&self, tag_prefix: &str) -> Result<Vec<Found>>;

    /// Usage and details, read back from the backend.
    async fn status(&self, handle: &Handle) -> Result<BackendStatus>;

    /// Whether it still lives. Asked whenever somebody looks, so it must be cheap.
    async fn is_alive(&self, handle: &Handle) -> Result<bool> {
        Ok(self.status(handle).await?.alive)
    }

    async fn extend(&self, _handle: &Handle, _expires_at: Timestamp) -> Result<()> {
        Err(self.unsupported("extending the TTL"))
    }

    async fn exec(&self, _handle: &Handle, _spec: ExecSpec) -> Result<ExecSession> {
        Err(self.unsupported("exec"))
    }

    /// Starts a command that outlives its caller.
    async fn exec_background(&self, _handle: &Handle, _spec: ExecSpec) -> Result<ExecInfo> {
        Err(self.unsupported("background execs"))
    }

    async fn exec_list(&self, _handle: &Handle) -> Result<Vec<ExecInfo>> {
        Err(self.unsupported("background execs"))
    }

    /// Kept output from `offset` on; waits up to `wait` for more while the command runs.
    async fn exec_logs(
        &self,
        _handle: &Handle,
        _exec: ExecId,
        _stream: LogStream,
        _offset: u64,
        _wait: Dur,
    ) -> Result<LogChunk> {
        Err(self.unsupported("background execs"))
    }

    /// More input for a background exec; `None` is its end.
    async fn exec_stdin(&self, _handle: &Handle, _exec: ExecId, _data: Option<Vec<u8>>) -> Result<()> {
        Err(self.unsupported("stdin of background execs"))
    }

    async fn exec_signal(&self, _handle: &Handle, _exec: ExecId, _signal: i32) -> Result<()> {
        Err(self.unsupported("signals"))
    }

    async fn file_stat(&self, _handle: &Handle, _path: &str) -> Result<FileInfo> {
        Err(self.unsupported("files"))
    }

    async fn file_list(&self, _handle: &Handle, _path: &str) -> Result<Vec<FileInfo>> {
        Err(self.unsupported("files"))
    }

    async fn file_read(&self, _handle: &Handle, _path: &str) -> Result<BoxRead> {
        Err(self.unsupported("files"))
    }

    /// Creates parents; replaces what was there at once or not at all.
    async fn file_write(&self, _handle: &Handle, _path: &str, _mode: u32, _data: BoxRead) -> Result<()> {
        Err(self.unsupported("files"))
    }

    async fn file_delete(&self, _handle: &Handle, _path: &str, _recursive: bool) -> Result<()> {
        Err(self.unsupported("files"))
    }

    async fn file_mkdir(&self, _handle: &Handle, _path: &str) -> Result<()> {
        Err(self.unsupported("files"))
    }

    async fn file_rename(&self, _handle: &Handle, _from: &str, _to: &str) -> Result<()> {
        Err(self.unsupported("files"))
    }

    /// A tar of what is below `path`.
    async fn archive_get(&self, _handle: &Handle, _path: &str) -> Result<BoxRead> {
        Err(self.unsupported("archives"))
    }

    /// Unpacks a tar below `path`, which is created.
    async fn archive_put(&self, _handle: &Handle, _path: &str, _tar: BoxRead) -> Result<()> {
        Err(self.unsupported("archives"))
    }

    /// Facts about the machine behind it, for `inspect host`.
    async fn host_facts(&self) -> Result<serde_json::Value> {
        Err(self.unsupported("host telemetry"))
    }

    /// The typed answer to an operation that this backend does not have.
    fn unsupported(&self, what: &str) -> Error {
        Error::unsupported(&self.describe().id, what)
    }
}

/// The extensions that the binary registered, by id.
#[derive(Clone, Default)]
pub struct Registry {
    extensions: BTreeMap<String, Arc<dyn Extension>>,
}

impl Registry {
    pub fn register(&mut self, extension: Arc<dyn Extension>) {
        self.extensions.insert(extension.describe().id, extension);
    }

    pub fn get(&self, id: &str) -> Result<Arc<dyn Extension>> {
        self.extensions.get(id).cloned().ok_or_else(|| {
            let error = Error::new(
                ErrorKind::ExtensionNotFound,
                format!("there is no extension `{}`", crate::suggest::printable(id)),
            );
            match crate::suggest::did_you_mean(id, self.ids()) {
                Some(hint) => error.with_hint(hint),
                None => error.with_hint("`sandboxer extensions list` shows what is there"),
            }
        })
    }

    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.extensions.keys().map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Extension>> {
        self.extensions.values()
    }
}
