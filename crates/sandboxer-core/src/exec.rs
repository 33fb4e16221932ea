//! One command run in a sandbox: what is asked, what streams, and how it ended.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::duration::Dur;
use crate::error::{Error, ErrorKind, Result};
use crate::id::ExecId;

pub type BoxRead = Pin<Box<dyn AsyncRead + Send>>;
pub type BoxWrite = Pin<Box<dyn AsyncWrite + Send>>;

/// The exit code that stands for a time-out, as `timeout(1)` has it.
pub const EXIT_TIMED_OUT: i32 = 124;

/// A list of arguments, or one string for `sh -c`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum Command {
    Args(Vec<String>),
    Shell(String),
}

impl Command {
    pub fn argv(&self) -> Vec<String> {
        match self {
            Self::Args(args) => args.clone(),
            Self::Shell(line) => vec!["/bin/sh".into(), "-c".into(), line.clone()],
        }
    }
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TtySize {
    pub rows: u16,
    pub cols: u16,
}

impl Default for TtySize {
    fn default() -> Self {
        Self { rows: 24, cols: 80 }
    }
}

/// What to run and how. Validated by [`ExecSpec::validate`] at the edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecSpec {
    pub exec_id: ExecId,
    pub argv: Vec<String>,
    pub cwd: Option<String>,
    pub env: BTreeMap<String, String>,
    pub user: Option<String>,
    pub timeout: Option<Dur>,
    pub tty: Option<TtySize>,
    /// Whether stdin is fed; without it the command reads end-of-file at once.
    pub stdin: bool,
}

impl ExecSpec {
    pub const MAX_ARGS: usize = 4_096;
    pub const MAX_BYTES: usize = 1 << 20;

    /// Bounds and characters that no backend can carry.
    pub fn validate(&self) -> Result<()> {
        let refuse = |why: String| Err(Error::new(ErrorKind::InvalidInput, why));
        if self.argv.is_empty() || self.argv[0].is_empty() {
            return refuse("the command is empty".into());
        }
        if self.argv.len() > Self::MAX_ARGS {
            return refuse(format!("the command has more than {} arguments", Self::MAX_ARGS));
        }
        let pieces = || {
            let env = self.env.iter().flat_map(|(key, value)| [key, value]);
            self.argv.iter().chain(env).chain(self.cwd.iter()).chain(self.user.iter())
        };
        if pieces().any(|piece| piece.contains('\0')) {
            return refuse("the command, environment, directory or user contains a NUL character".into());
        }
        if pieces().map(String::len).sum::<usize>() > Self::MAX_BYTES {
            return refuse(format!(
                "the command and its environment are larger than {} bytes",
                Self::MAX_BYTES
            ));
        }
        if let Some(name) = self.env.keys().find(|name| !is_env_name(name)) {
            return refuse(format!("`{}` is not a variable name", crate::suggest::printable(name)));
        }
        if self.timeout == Some(Dur::ZERO) {
            return refuse("a time-out of zero would end the command before it starts".into());
        }
        Ok(())
    }
}

/// A name that every shell and backend can carry.
pub fn is_env_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// How a command ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ExecOutcome {
    /// As shells report it: 127 not found, 126 not executable, 128+N killed by signal N, 124 timed out.
    pub exit_code: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    #[serde(default)]
    pub timed_out: bool,
    /// The memory limit killed it.
    #[serde(default)]
    pub out_of_memory: bool,
}

/// A running command and its streams. Dropping it ends the command and everything that it started.
pub struct ExecSession {
    pub stdin: Option<BoxWrite>,
    /// stdout, or the terminal's output.
    pub stdout: BoxRead,
    /// Absent with a terminal.
    pub stderr: Option<BoxRead>,
    pub control: Arc<dyn ExecControl>,
}

/// What can be done to a running command.
#[async_trait]
pub trait ExecControl: Send + Sync {
    /// How it ended. May be called once the streams are being read, from any task.
    async fn wait(&self) -> Result<ExecOutcome>;
    /// A signal for the command; `whole_tree` for everything that it started.
    async fn signal(&self, signal: i32, whole_tree: bool) -> Result<()>;
    async fn resize(&self, size: TtySize) -> Result<()>;
}

/// Where an exec stands, for listings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ExecInfo {
    pub exec_id: ExecId,
    pub command: Vec<String>,
    pub background: bool,
    pub running: bool,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: jiff::Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<jiff::Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ExecOutcome>,
}

/// Which output of a background exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    Stdout,
    Stderr,
}

/// Kept output of a background exec from a position on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogChunk {
    pub data: Vec<u8>,
    /// Where the next chunk starts.
    pub next_offset: u64,
    /// Bytes that were produced at this position and not kept.
    pub skipped: u64,
    /// Nothing more will come.
    pub finished: bool,
}
