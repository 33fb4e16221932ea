//! What the processes say to each other.

use crate::dirs::RuntimeDirs;
use crate::error::RuntimeError;
use crate::probe::{Probe, ProbeOverrides};
use crate::report::{CleanupReport, Enforced, ExecExit, ExecInfo, LogChunk, Status};
use crate::spec::{ExecSpec, FileOp, SandboxSpec, Stream};
use serde::{Deserialize, Serialize};

/// Caller → launcher; the descriptor that comes along takes the answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LauncherRequest {
    Launch(Box<LaunchRequest>),
    Probe { dirs: RuntimeDirs, overrides: ProbeOverrides },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LaunchRequest {
    pub(crate) dirs: RuntimeDirs,
    pub(crate) spec: SandboxSpec,
    pub(crate) overrides: ProbeOverrides,
}

/// Caller → supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    Exec(Box<ExecRequest>),
    /// Concerns the foreground exec of this connection.
    Signal {
        signal: i32,
        whole_tree: bool,
    },
    Ping,
    Status {
        verify: bool,
    },
    Extend {
        deadline_unix_ms: u64,
    },
    /// Gives a warm sandbox its identity.
    Adopt {
        spec: Box<SandboxSpec>,
    },
    Stop,
    /// A connection to a port inside; its socket comes with the answer.
    Connect {
        port: u16,
        ipv6: bool,
    },
    Execs,
    ExecStatus {
        id: String,
    },
    ExecLogs {
        id: String,
        stream: Stream,
        offset: u64,
        follow: bool,
    },
    /// The bytes are the raw part of the frame.
    ExecStdin {
        id: String,
        eof: bool,
    },
    ExecSignal {
        id: String,
        signal: i32,
        whole_tree: bool,
    },
}

/// What runs in the forked child.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Program {
    Command,
    File(FileOp),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ExecRequest {
    pub(crate) spec: ExecSpec,
    pub(crate) program: Program,
    /// Which of stdin, stdout and stderr come as descriptors, in this order; the others are `/dev/null`.
    pub(crate) streams: [bool; 3],
}

/// Launcher or supervisor → caller.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Launched(Box<LaunchedReply>),
    /// A living sandbox has this id already.
    Existing,
    Probed(Box<Probe>),
    /// With a terminal, its master comes along.
    Started {
        id: String,
        pid: i32,
    },
    Exited(ExecExit),
    Pong,
    /// The connected socket comes along.
    Connected,
    Status(Box<Status>),
    Done,
    Stopped(CleanupReport),
    Execs(Vec<ExecInfo>),
    Log(LogChunk),
    Failed(RuntimeError),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LaunchedReply {
    pub(crate) supervisor_pid: i32,
    pub(crate) init_pid: i32,
    pub(crate) started_unix_ms: u64,
    pub(crate) enforced: Enforced,
}

/// Supervisor → init. `number` is the supervisor's own name of an exec.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToInit {
    /// During the setup: the descriptors that come along are the `tasks` files of its cgroups.
    Join,
    Exec {
        number: u64,
        request: Box<ExecRequest>,
    },
    Signal {
        number: u64,
        signal: i32,
        whole_tree: bool,
    },
    Ping {
        number: u64,
    },
    Connect {
        number: u64,
        port: u16,
        ipv6: bool,
    },
}

/// Init → supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromInit {
    Ready {
        enforced: Enforced,
    },
    SetupFailed(RuntimeError),
    Started {
        number: u64,
        pid: i32,
    },
    Exited {
        number: u64,
        code: i32,
        signal: Option<i32>,
    },
    Refused {
        number: u64,
        error: RuntimeError,
    },
    Pong {
        number: u64,
    },
    /// With the socket.
    Connected {
        number: u64,
    },
    NotConnected {
        number: u64,
        error: RuntimeError,
    },
}

/// How a builtin ended; one JSON document on its stderr.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Done,
    Failed(RuntimeError),
}
