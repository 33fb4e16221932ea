//! What the runtime reports: what was enforced, what an exec did, what a teardown removed and left.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One isolation control or limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    UserNamespace,
    MountNamespace,
    PidNamespace,
    NetworkNamespace,
    IpcNamespace,
    UtsNamespace,
    CgroupNamespace,
    UidMapping,
    RootFilesystem,
    Capabilities,
    NoNewPrivs,
    Seccomp,
    Landlock,
    NotDumpable,
    CoreDumps,
    MemoryLimit,
    CpuLimit,
    PidsLimit,
    DiskLimit,
    Mounts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Enforced,
    Degraded,
    Missing,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnforcedControl {
    pub control: Control,
    pub outcome: Outcome,
    pub detail: String,
}

/// What holds for one sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforced {
    pub controls: Vec<EnforcedControl>,
    /// Whether the outcomes were read back from the kernel, not only returned by the steps.
    pub verified: bool,
}

impl Enforced {
    pub(crate) fn push(&mut self, control: Control, outcome: Outcome, detail: impl Into<String>) {
        self.controls.push(EnforcedControl { control, outcome, detail: detail.into() });
    }

    pub fn get(&self, control: Control) -> Option<&EnforcedControl> {
        self.controls.iter().find(|c| c.control == control)
    }

    /// Whether every isolation control and every limit that was asked for holds.
    pub fn is_complete(&self) -> bool {
        self.controls.iter().all(|c| c.outcome == Outcome::Enforced)
    }
}

/// How an exec ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecExit {
    /// As shells report it: 127 not found, 126 not executable, 128+N killed by signal N, 124 timed out.
    pub code: i32,
    pub signal: Option<i32>,
    pub timed_out: bool,
    /// The memory limit killed it.
    pub oom: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecState {
    Running,
    Exited,
}

/// One exec the supervisor knows of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecInfo {
    pub id: String,
    pub argv: Vec<String>,
    pub background: bool,
    pub state: ExecState,
    /// The process id inside the sandbox.
    pub pid: Option<i32>,
    pub started_unix_ms: u64,
    pub ended_unix_ms: Option<u64>,
    pub exit: Option<ExecExit>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
}

/// A piece of a background exec's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogChunk {
    #[serde(skip)]
    pub data: Vec<u8>,
    /// Where `data` begins in the whole stream; above the asked offset when bytes were cut.
    pub offset: u64,
    pub next_offset: u64,
    pub total: u64,
    /// Bytes dropped from the middle of the stream so far.
    pub cut: u64,
    /// The stream is complete and `next_offset` is its end.
    pub end: bool,
}

/// What the sandbox uses now; `None` where the host cannot tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub memory_bytes: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    pub cpu_usec: Option<u64>,
    pub pids: Option<u64>,
    pub disk_bytes: Option<u64>,
}

/// A living sandbox, as its supervisor sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub id: String,
    pub supervisor_pid: i32,
    pub init_pid: i32,
    pub started_unix_ms: u64,
    pub deadline_unix_ms: u64,
    pub idle_timeout_ms: Option<u64>,
    pub last_activity_unix_ms: u64,
    pub execs_running: u32,
    pub execs_total: u64,
    pub usage: Usage,
    pub enforced: Enforced,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftBehind {
    pub what: String,
    pub path: PathBuf,
    pub reason: String,
}

/// What a teardown removed and what it could not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanupReport {
    pub removed: Vec<String>,
    pub left: Vec<LeftBehind>,
}

impl CleanupReport {
    pub fn is_clean(&self) -> bool {
        self.left.is_empty()
    }

    pub(crate) fn leave(&mut self, what: &str, path: impl Into<PathBuf>, reason: impl std::fmt::Display) {
        // A report that names the first hundred leftovers says enough and stays bounded.
        if self.left.len() < 100 {
            self.left.push(LeftBehind {
                what: what.to_owned(),
                path: path.into(),
                reason: reason.to_string(),
            });
        }
    }
}
