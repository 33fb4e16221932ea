//! Commands: the runtime's sessions as the contract's.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::exec::{ExecControl, ExecInfo, ExecOutcome, ExecSession, ExecSpec, LogChunk, TtySize};
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_runtime as runtime;

use crate::errors::map;

pub(crate) fn to_runtime(spec: &ExecSpec) -> runtime::ExecSpec {
    runtime::ExecSpec {
        id: spec.exec_id.to_string(),
        argv: spec.argv.clone(),
        cwd: spec.cwd.clone(),
        env: spec.env.clone(),
        user: spec.user.clone(),
        timeout_ms: spec.timeout.map(|timeout| timeout.as_millis()),
        tty: spec.tty.map(|size| runtime::Tty { rows: size.rows, cols: size.cols }),
        background: false,
    }
}

pub(crate) async fn start(control: &runtime::Control, spec: ExecSpec) -> Result<ExecSession> {
    let stdin = if spec.stdin { runtime::Stdio::Piped } else { runtime::Stdio::Null };
    let streams = [stdin, runtime::Stdio::Piped, runtime::Stdio::Piped];
    let mut session = control.exec_with(to_runtime(&spec), streams).await.map_err(map)?;
    let (stdin, stdout, stderr) = (session.stdin.take(), session.stdout.take(), session.stderr.take());
    let stdout = stdout.ok_or_else(|| Error::new(ErrorKind::Internal, "an exec has no output"))?;
    Ok(ExecSession {
        stdin: stdin.map(|stdin| Box::pin(stdin) as _),
        stdout: Box::pin(stdout),
        stderr: stderr.map(|stderr| Box::pin(stderr) as _),
        control: Arc::new(Running { handle: session.handle() }),
    })
}

/// The last one to drop it ends the command.
struct Running {
    handle: runtime::ExecHandle,
}

#[async_trait]
impl ExecControl for Running {
    async fn wait(&self) -> Result<ExecOutcome> {
        self.handle.clone().wait().await.map(to_outcome).map_err(map)
    }

    async fn signal(&self, signal: i32, whole_tree: bool) -> Result<()> {
        self.handle.signal(signal, whole_tree).await.map_err(map)
    }

    async fn resize(&self, size: TtySize) -> Result<()> {
        self.handle.resize(size.rows, size.cols).map_err(map)
    }
}

fn to_outcome(exit: runtime::ExecExit) -> ExecOutcome {
    ExecOutcome {
        exit_code: exit.code,
        signal: exit.signal,
        timed_out: exit.timed_out,
        out_of_memory: exit.oom,
    }
}

pub(crate) fn to_info(info: runtime::ExecInfo) -> Result<ExecInfo> {
    let time = |ms: u64| {
        Timestamp::from_millisecond(i64::try_from(ms).unwrap_or(i64::MAX)).unwrap_or(Timestamp::MAX)
    };
    Ok(ExecInfo {
        exec_id: info.id.parse()?,
        command: info.argv,
        background: info.background,
        running: info.state == runtime::ExecState::Running,
        started_at: time(info.started_unix_ms),
        ended_at: info.ended_unix_ms.map(time),
        outcome: info.exit.map(to_outcome),
    })
}

pub(crate) fn to_chunk(asked: u64, chunk: runtime::LogChunk) -> LogChunk {
    LogChunk {
        skipped: chunk.offset.saturating_sub(asked),
        next_offset: chunk.next_offset,
        finished: chunk.end,
        data: chunk.data,
    }
}
