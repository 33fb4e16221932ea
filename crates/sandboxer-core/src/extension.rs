//! The extension contract: an adapter to one backend reports facts, the engine decides.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::capability::Capability;
use crate::duration::Dur;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::{BoxRead, ExecInfo, ExecSession, ExecSpec, LogChunk, LogStream};
use crate::files::FileInfo;
use crate::id::{ExecId, SandboxId, SnapshotId};
use crate::isolation::{Control, IsolationLevel};
use crate::snapshot::Taken;
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

/// Where a service elsewhere keeps its sandboxes and their data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Location {
    /// Regions that `route.constraints.region` may name.
    #[serde(default)]
    pub regions: Vec<String>,
    /// Labels that `route.constraints.residency` may name: `eu`, `us` …
    #[serde(default)]
    pub residency: Vec<String>,
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
    /// The name of the host, already chosen.
    pub host: String,
    /// A plain tar with what the workspace starts with. It goes in before `workspace.access` is applied.
    pub seed: Option<PathBuf>,
    /// Start from this checkpoint instead of the image.
    pub from: Option<Taken>,
    /// Long work tells here how far it is.
    pub progress: Progress,
    /// The backend ends the sandbox by itself at this moment, whoever lives then.
    pub expires_at: Timestamp,
    pub idle_reap: Option<Dur>,
}

/// A key at a provider. It is in no log, no row and no event.
#[derive(Clone)]
pub struct Credential(String);

impl Credential {
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret itself, for the requests that need it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Tells keys apart without telling them: the beginning of the SHA-256.
    pub fn fingerprint(&self) -> String {
        crate::hash::sha256_hex(self.0.as_bytes())[..16].to_owned()
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

/// Where long work tells how far it is; whoever created the sandbox reads it.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<Tell>>);

type Tell = dyn Fn(&str) + Send + Sync;

impl Progress {
    pub fn new(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }

    /// One line for people.
    pub fn say(&self, line: impl AsRef<str>) {
        if let Some(tell) = &self.0 {
            tell(line.as_ref());
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

/// What the extension needs to find the sandbox again, and what it enforced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handle {
    pub tag: String,
    /// The name of the host that it is on.
    #[serde(default = "local")]
    pub host: String,
    pub effective: IsolationLevel,
    pub controls: Vec<Control>,
    /// A required control was waived by `allow_degraded`.
    pub degraded: bool,
    /// The extension's own words; nobody else reads them.
    pub data: serde_json::Value,
}

fn local() -> String {
    crate::host::LOCAL.to_owned()
}

/// A connection to a port inside a sandbox.
pub trait Duplex: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}
pub type BoxDuplex = Pin<Box<dyn Duplex>>;

/// How a consumer reaches the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Reachability {
    /// `exec` (through our API), `ssh`, `url` …
    pub method: String,
    /// The endpoint in the method's own form.
    pub endpoint: String,
    /// How the probe showed that it answers.
    pub probe: String,
    /// Ports that the backend published, each with the address that reaches it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PublishedPort>,
}

/// One port that can be reached from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PublishedPort {
    /// The part of the sandbox that listens, where it has parts: a compose service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The port inside.
    pub port: u16,
    /// `127.0.0.1:49153`, as seen on the sandbox's host.
    pub address: String,
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

/// What the backend still has under one tag of ours: a sandbox's or a snapshot's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Found {
    pub tag: String,
    /// It works; otherwise only its remains are there. A snapshot is alive when it can be used.
    pub alive: bool,
    /// What a teardown of the tag would remove, each as `container sandboxer-sbx_…` or `directory /…`.
    pub parts: Vec<String>,
}

/// Whether a sandbox lives, in the word of its backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Alive,
    /// It is over, or the backend knows nothing of it. `at` is when it ended, where the backend can say; its clock may
    /// be wrong, so that whoever charges by it bounds it.
    Ended {
        at: Option<Timestamp>,
    },
}

impl Life {
    /// Over, and the backend cannot say since when.
    pub const ENDED: Self = Self::Ended { at: None };

    /// For backends that know no more than whether it lives.
    pub fn of(alive: bool) -> Self {
        if alive { Self::Alive } else { Self::ENDED }
    }

    pub fn is_alive(self) -> bool {
        self == Self::Alive
    }
}

/// Where a sandbox stands according to its backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BackendStatus {
    pub alive: bool,
    /// When it ended, where it did and the backend can say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Extension-specific facts for `inspect sandbox`.
    #[schema(value_type = Object)]
    pub detail: serde_json::Value,
}

impl BackendStatus {
    /// Of something that lives.
    pub fn alive(usage: Option<Usage>, detail: serde_json::Value) -> Self {
        Self { alive: true, ended_at: None, usage, detail }
    }

    /// Of something that is over.
    pub fn ended(at: Option<Timestamp>, detail: serde_json::Value) -> Self {
        Self { alive: false, ended_at: at, usage: None, detail }
    }

    pub fn life(&self) -> Life {
        if self.alive { Life::Alive } else { Life::Ended { at: self.ended_at } }
    }
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

    /// What is there and what is missing on this host, without changing anything.
    async fn check(&self, host: &str) -> Result<CheckReport>;

    /// How long a provision of this may take, where the engine's own limit is too short: an image that is built first.
    fn provision_timeout(&self, _spec: &SandboxSpec) -> Option<Dur> {
        None
    }

    /// Where a service elsewhere keeps its sandboxes. For hosts of ours the host's own region and labels say it.
    fn location(&self) -> Location {
        Location::default()
    }

    /// The same backend with a workspace's own key in place of the platform's. Everything that is made with the one that
    /// is returned lives in that key's account, and every later call about it, also the listing after a crash, comes
    /// through one with the workspace's key of that moment. Nothing where there are no accounts, as on machines of one's own.
    fn with_key(&self, _key: &Credential) -> Option<Arc<dyn Extension>> {
        None
    }

    /// Idempotent on the tag.
    async fn provision(&self, request: ProvisionRequest) -> Result<Handle>;

    /// Proves that the sandbox answers.
    async fn wait_ready(&self, handle: &Handle) -> Result<Reachability>;

    /// Removes it and everything that belongs to the tag. Idempotent; works without a handle after a crash.
    async fn teardown(&self, host: &str, tag: &str, handle: Option<&Handle>) -> Result<CleanupReport>;

    /// Everything of ours on this host whose tag starts so, alive or not. Sandboxes have tags `sbx_…`, snapshots `snp_…`.
    async fn list(&self, host: &str, tag_prefix: &str) -> Result<Vec<Found>>;

    /// Usage and details, read back from the backend.
    async fn status(&self, handle: &Handle) -> Result<BackendStatus>;

    /// Whether it still lives, and if not since when, where the backend knows: what is charged ends then. Asked whenever
    /// somebody looks, so it must be cheap.
    async fn life(&self, handle: &Handle) -> Result<Life> {
        Ok(self.status(handle).await?.life())
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

    /// A connection to a port that something inside listens on, on its loopback.
    async fn port_connect(&self, _handle: &Handle, _port: u16) -> Result<BoxDuplex> {
        Err(self.unsupported("ports"))
    }

    /// What the backend itself logged: the services of a compose stack, the console of a machine.
    async fn backend_logs(&self, _handle: &Handle, _follow: bool) -> Result<BoxRead> {
        Err(self.unsupported("logs of the backend"))
    }

    /// Stops everything inside where it stands. Idempotent, as is `resume`.
    async fn pause(&self, _handle: &Handle) -> Result<()> {
        Err(self.unsupported("pause"))
    }

    async fn resume(&self, _handle: &Handle) -> Result<()> {
        Err(self.unsupported("pause"))
    }

    /// Takes a checkpoint under this id, which `list` finds as its tag. Idempotent on the id.
    async fn snapshot(&self, _handle: &Handle, _id: SnapshotId) -> Result<Taken> {
        Err(self.unsupported("snapshots"))
    }

    /// Removes a checkpoint. Idempotent; works without `taken` after a crash.
    async fn snapshot_delete(
        &self,
        _host: &str,
        _id: SnapshotId,
        _taken: Option<&Taken>,
    ) -> Result<CleanupReport> {
        Err(self.unsupported("snapshots"))
    }

    /// Facts about the machine behind it, for `inspect host`.
    async fn host_facts(&self, _host: &str) -> Result<serde_json::Value> {
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
    /// In the order in which they are preferred where a profile names none.
    extensions: Vec<(String, Arc<dyn Extension>)>,
}

impl Registry {
    pub fn register(&mut self, extension: Arc<dyn Extension>) {
        let id = extension.describe().id;
        self.extensions.retain(|(other, _)| *other != id);
        self.extensions.push((id, extension));
    }

    pub fn get(&self, id: &str) -> Result<Arc<dyn Extension>> {
        self.extensions.iter().find(|(other, _)| other == id).map(|(_, found)| found.clone()).ok_or_else(
            || {
                let error = Error::new(
                    ErrorKind::ExtensionNotFound,
                    format!("there is no extension `{}`", crate::suggest::printable(id)),
                );
                match crate::suggest::did_you_mean(id, self.ids()) {
                    Some(hint) => error.with_hint(hint),
                    None => error.with_hint("`sandboxer extensions list` shows what is there"),
                }
            },
        )
    }

    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.extensions.iter().map(|(id, _)| id.as_str())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Extension>> {
        self.extensions.iter().map(|(_, extension)| extension)
    }
}
