//! What a caller asks for: a sandbox, an exec, a file operation. Plain data; bounds are checked in `validate`.

use crate::error::{Result, RuntimeError};
use crate::identity;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The most bytes argv and environment of one exec may have together; the kernel's own bound is 2 MiB.
pub(crate) const MAX_ARGUMENT_BYTES: usize = 1 << 20;
/// The longest path accepted anywhere.
pub(crate) const MAX_PATH_BYTES: usize = 4095;
const MAX_ID_BYTES: usize = 64;
const MAX_MOUNTS: usize = 64;
const MAX_LAYERS: usize = 64;
const MAX_LABEL_BYTES: usize = 64 << 10;

/// A sandbox to launch.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxSpec {
    /// `[a-z0-9_-]`, at most 64 characters; names the directory and the cgroups.
    pub id: String,
    /// When the supervisor removes the sandbox, in milliseconds of Unix time. No sandbox is without one.
    pub deadline_unix_ms: u64,
    #[serde(default)]
    pub idle_timeout_ms: Option<u64>,
    #[serde(default)]
    pub hostname: Option<String>,
    #[serde(default)]
    pub image: Image,
    /// Read-only layers between the image and the writable layer, topmost first; each has the shape of `layer/`.
    #[serde(default)]
    pub layers: Vec<PathBuf>,
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// Variables of every exec.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The default working directory of execs.
    #[serde(default)]
    pub cwd: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub limits: Limits,
    /// Start even where a waivable control is missing, and list it in the report.
    #[serde(default)]
    pub allow_degraded: bool,
    /// A tar of the host that `/workspace` starts with. Read by the launch, which fails if it cannot be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<PathBuf>,
    /// Nobody inside can write below `/workspace`, root neither.
    #[serde(default)]
    pub workspace_read_only: bool,
    /// Made in advance and nobody's yet: until it is adopted it ends with the connection that launched it.
    #[serde(default)]
    pub warm: bool,
}

/// Where the files of the sandbox come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Image {
    /// The host's own `/usr` and the harmless part of its `/etc`, read-only below the writable layer.
    #[default]
    Host,
}

/// A directory or file of the host made visible inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    pub source: PathBuf,
    pub target: PathBuf,
    #[serde(default)]
    pub read_only: bool,
}

/// Resource limits; `None` means no limit of our own.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    pub memory_mb: Option<u64>,
    /// In cores, fractions allowed.
    pub cpu: Option<f64>,
    pub pids: Option<u32>,
    pub disk_mb: Option<u64>,
    /// Size of `/tmp`; a tmpfs, so it also counts as memory.
    pub tmp_mb: Option<u64>,
}

/// A terminal of this size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tty {
    pub rows: u16,
    pub cols: u16,
}

/// A command to run in a sandbox.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExecSpec {
    /// Names a background exec; made up when empty.
    pub id: String,
    pub argv: Vec<String>,
    pub cwd: Option<String>,
    pub env: BTreeMap<String, String>,
    /// A name, `uid` or `uid:gid` inside the sandbox; `user` (1000) when empty.
    pub user: Option<String>,
    pub timeout_ms: Option<u64>,
    pub tty: Option<Tty>,
    pub background: bool,
}

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Stdout,
    Stderr,
}

/// A file operation; runs inside the sandbox, as the exec user, by the same mechanism as a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "op")]
pub enum FileOp {
    Read { path: String, offset: u64, limit: Option<u64> },
    Write { path: String, mode: Option<u32>, create_parents: bool },
    List { path: String, depth: u32 },
    Stat { path: String },
    Delete { path: String, recursive: bool },
    Mkdir { path: String, parents: bool },
    Rename { from: String, to: String },
    TarOut { path: String },
    TarIn { path: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Other,
}

/// One file as `stat` and `list` see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    pub path: String,
    pub kind: FileKind,
    pub size: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified_unix_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_target: Option<String>,
}

impl SandboxSpec {
    /// A sandbox of the host image with no limits, which ends after `ttl`.
    pub fn new(id: impl Into<String>, ttl: Duration) -> Self {
        Self {
            id: id.into(),
            deadline_unix_ms: unix_ms().saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            idle_timeout_ms: None,
            hostname: None,
            image: Image::Host,
            layers: Vec::new(),
            mounts: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
            labels: BTreeMap::new(),
            limits: Limits::default(),
            allow_degraded: false,
            seed: None,
            workspace_read_only: false,
            warm: false,
        }
    }

    /// Whether a sandbox launched as `self` is what a launch as `other` would give, but for what adoption changes:
    /// the id, the deadlines, the variables, the working directory and the labels.
    pub fn has_shape_of(&self, other: &Self) -> bool {
        self.hostname == other.hostname
            && self.image == other.image
            && self.layers == other.layers
            && self.mounts == other.mounts
            && self.limits == other.limits
            && self.allow_degraded == other.allow_degraded
            && self.seed == other.seed
            && self.workspace_read_only == other.workspace_read_only
    }

    /// Bounds and forms that can be checked without looking at the machine.
    pub fn validate(&self) -> Result<()> {
        validate_id(&self.id)?;
        if let Some(hostname) = &self.hostname {
            let fits = !hostname.is_empty() && hostname.len() <= 63;
            if !fits || !hostname.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.') {
                return Err(RuntimeError::invalid(format!("hostname `{hostname}` is not a valid host name")));
            }
        }
        if self.mounts.len() > MAX_MOUNTS || self.layers.len() > MAX_LAYERS {
            return Err(RuntimeError::invalid("too many mounts or layers (64 of each at most)"));
        }
        for layer in &self.layers {
            if !layer.is_absolute() {
                return Err(RuntimeError::invalid(format!(
                    "layer `{}` is not an absolute path",
                    layer.display()
                )));
            }
        }
        if self.seed.as_ref().is_some_and(|seed| !seed.is_absolute()) {
            return Err(RuntimeError::invalid("the seed is not an absolute path"));
        }
        validate_env(&self.env)?;
        if let Some(cwd) = &self.cwd {
            validate_path(cwd)?;
        }
        let labels: usize = self.labels.iter().map(|(k, v)| k.len() + v.len()).sum();
        if labels > MAX_LABEL_BYTES {
            return Err(RuntimeError::invalid("labels are above 64 KiB together"));
        }
        self.limits.validate()
    }
}

impl Limits {
    fn validate(&self) -> Result<()> {
        if let Some(cpu) = self.cpu
            && !(0.01..=4096.0).contains(&cpu)
        {
            return Err(RuntimeError::invalid(format!("cpu limit {cpu} is not between 0.01 and 4096 cores")));
        }
        if self.memory_mb.is_some_and(|mb| !(8..=1 << 30).contains(&mb)) {
            return Err(RuntimeError::invalid("memory limit must be at least 8 MiB"));
        }
        if self.pids.is_some_and(|n| n < 8) {
            return Err(RuntimeError::invalid("pids limit must be at least 8"));
        }
        if self.disk_mb == Some(0) || self.tmp_mb == Some(0) {
            return Err(RuntimeError::invalid("a size limit must be at least 1 MiB"));
        }
        Ok(())
    }
}

impl ExecSpec {
    pub fn new<I, S>(argv: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        Self { argv: argv.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    pub fn validate(&self) -> Result<()> {
        if self.argv.is_empty() || self.argv[0].is_empty() {
            return Err(RuntimeError::invalid("the command is empty"));
        }
        if self.argv.iter().any(|arg| arg.contains('\0')) {
            return Err(RuntimeError::invalid("an argument contains a NUL byte"));
        }
        let bytes: usize = self.argv.iter().map(|arg| arg.len() + 1).sum();
        if bytes > MAX_ARGUMENT_BYTES || self.argv.len() > 64 << 10 {
            return Err(RuntimeError::invalid("the arguments are above 1 MiB together"));
        }
        if !self.id.is_empty() {
            validate_id(&self.id)?;
        }
        if let Some(user) = &self.user {
            identity::validate_user(user)?;
        }
        if let Some(cwd) = &self.cwd {
            validate_path(cwd)?;
        }
        validate_env(&self.env)
    }
}

impl FileOp {
    pub fn validate(&self) -> Result<()> {
        match self {
            Self::Read { path, .. }
            | Self::Write { path, .. }
            | Self::List { path, .. }
            | Self::Stat { path }
            | Self::Delete { path, .. }
            | Self::Mkdir { path, .. }
            | Self::TarOut { path }
            | Self::TarIn { path } => validate_path(path),
            Self::Rename { from, to } => validate_path(from).and_then(|()| validate_path(to)),
        }
    }
}

pub(crate) fn validate_id(id: &str) -> Result<()> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    if id.is_empty() || id.len() > MAX_ID_BYTES || !id.bytes().all(allowed) {
        return Err(RuntimeError::invalid(format!("`{}` is not a valid id", id.escape_debug())));
    }
    Ok(())
}

fn validate_path(path: &str) -> Result<()> {
    if path.is_empty() || path.len() > MAX_PATH_BYTES || path.contains('\0') {
        return Err(RuntimeError::invalid("a path is empty, too long or contains a NUL byte"));
    }
    Ok(())
}

fn validate_env(env: &BTreeMap<String, String>) -> Result<()> {
    let mut bytes = 0;
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(RuntimeError::invalid(format!(
                "environment variable `{}` is malformed",
                name.escape_debug()
            )));
        }
        bytes += name.len() + value.len() + 2;
    }
    if bytes > MAX_ARGUMENT_BYTES {
        return Err(RuntimeError::invalid("the environment is above 1 MiB"));
    }
    Ok(())
}

pub(crate) fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
