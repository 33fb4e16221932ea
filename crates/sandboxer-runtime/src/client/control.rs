//! Talking to one living sandbox.

use super::connection::{Connection, unexpected};
use super::files::Files;
use super::session::{ExecSession, Stdio};
use crate::error::{Result, RuntimeError};
use crate::report::{CleanupReport, ExecInfo, LogChunk, Status};
use crate::spec::{ExecSpec, SandboxSpec, Stream};
use crate::wire::{ExecRequest, MAX_DATA, Program, Reply, Request};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(super) const CALL_LIMIT: Duration = Duration::from_secs(10);

/// A handle on one sandbox; every call is a connection of its own, so calls do not wait for each other.
#[derive(Clone)]
pub struct Control {
    id: String,
    dir: Arc<OwnedFd>,
    /// A connection left from launching, used by the first call.
    spare: Arc<Mutex<Option<Connection>>>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Control {
    pub(crate) fn new(id: String, dir: OwnedFd, spare: Option<Connection>) -> Self {
        Self { id, dir: Arc::new(dir), spare: Arc::new(Mutex::new(spare)) }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) async fn connection(&self) -> Result<Connection> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        match spare {
            Some(connection) => Ok(connection),
            None => Connection::open(&self.dir, &self.id).await,
        }
    }

    async fn call(&self, request: &Request, data: &[u8]) -> Result<Reply> {
        let mut connection = self.connection().await?;
        let (reply, _) = connection.call(request, data, Some(CALL_LIMIT)).await?;
        Ok(reply)
    }

    /// Starts a foreground exec with pipes on all three streams, or with a terminal if the spec has one.
    pub async fn exec(&self, spec: ExecSpec) -> Result<ExecSession> {
        self.exec_with(spec, [Stdio::Piped, Stdio::Piped, Stdio::Piped]).await
    }

    /// Starts a foreground exec on the given stdin, stdout and stderr.
    pub async fn exec_with(&self, spec: ExecSpec, streams: [Stdio; 3]) -> Result<ExecSession> {
        spec.validate()?;
        if spec.background {
            return Err(RuntimeError::invalid("a background exec has no streams; use `exec_background`"));
        }
        ExecSession::start(self.connection().await?, spec, Program::Command, streams).await
    }

    pub(crate) async fn builtin(
        &self,
        spec: ExecSpec,
        program: Program,
        streams: [Stdio; 3],
    ) -> Result<ExecSession> {
        ExecSession::start(self.connection().await?, spec, program, streams).await
    }

    /// File operations as the default user.
    pub fn files(&self) -> Files {
        Files::new(self.clone())
    }

    /// Starts an exec whose output the supervisor keeps; returns its id and its process id inside.
    pub async fn exec_background(&self, mut spec: ExecSpec) -> Result<ExecInfo> {
        spec.background = true;
        spec.validate()?;
        let request = ExecRequest { spec, program: Program::Command, streams: [false; 3] };
        let reply = self.call(&Request::Exec(Box::new(request)), &[]).await?;
        let Reply::Started { id, .. } = reply else { return Err(unexpected(&reply)) };
        self.exec_status(&id).await
    }

    /// Every exec the supervisor remembers.
    pub async fn execs(&self) -> Result<Vec<ExecInfo>> {
        match self.call(&Request::Execs, &[]).await? {
            Reply::Execs(execs) => Ok(execs),
            reply => Err(unexpected(&reply)),
        }
    }

    pub async fn exec_status(&self, id: &str) -> Result<ExecInfo> {
        match self.call(&Request::ExecStatus { id: id.to_owned() }, &[]).await? {
            Reply::Execs(mut execs) if execs.len() == 1 => Ok(execs.remove(0)),
            reply => Err(unexpected(&reply)),
        }
    }

    /// A piece of a background exec's output; with `follow` it waits until there is something after `offset`.
    pub async fn exec_logs(&self, id: &str, stream: Stream, offset: u64, follow: bool) -> Result<LogChunk> {
        let mut connection = self.connection().await?;
        let request = Request::ExecLogs { id: id.to_owned(), stream, offset, follow };
        let limit = (!follow).then_some(CALL_LIMIT);
        match connection.call(&request, &[], limit).await? {
            (Reply::Log(mut chunk), frame) => {
                chunk.data = frame.data;
                Ok(chunk)
            }
            (reply, _) => Err(unexpected(&reply)),
        }
    }

    /// Feeds a background exec; at most 1 MiB a call.
    pub async fn exec_stdin(&self, id: &str, data: &[u8], eof: bool) -> Result<()> {
        if data.len() > MAX_DATA {
            return Err(RuntimeError::invalid("at most 1 MiB of stdin a call"));
        }
        self.done(&Request::ExecStdin { id: id.to_owned(), eof }, data).await
    }

    pub async fn exec_signal(&self, id: &str, signal: i32, whole_tree: bool) -> Result<()> {
        self.done(&Request::ExecSignal { id: id.to_owned(), signal, whole_tree }, &[]).await
    }

    /// Asks init for a sign of life: the reachability probe.
    pub async fn ping(&self) -> Result<()> {
        match self.call(&Request::Ping, &[]).await? {
            Reply::Pong => Ok(()),
            reply => Err(unexpected(&reply)),
        }
    }

    /// With `verify`, the report is read back from the kernel, not remembered.
    pub async fn status(&self, verify: bool) -> Result<Status> {
        match self.call(&Request::Status { verify }, &[]).await? {
            Reply::Status(status) => Ok(*status),
            reply => Err(unexpected(&reply)),
        }
    }

    /// Moves the deadline.
    pub async fn extend(&self, deadline_unix_ms: u64) -> Result<()> {
        self.done(&Request::Extend { deadline_unix_ms }, &[]).await
    }

    /// Gives a warm sandbox its identity; the connection of its launch is the only one that may.
    pub(crate) async fn adopt(&self, spec: SandboxSpec) -> Result<Self> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut connection = spare.ok_or_else(|| RuntimeError::invalid("the sandbox is not a warm one"))?;
        let id = spec.id.clone();
        match connection.call(&Request::Adopt { spec: Box::new(spec) }, &[], Some(CALL_LIMIT)).await? {
            (Reply::Done, _) => {
                Ok(Self { id, dir: self.dir.clone(), spare: Arc::new(Mutex::new(Some(connection))) })
            }
            (reply, _) => Err(unexpected(&reply)),
        }
    }

    pub(crate) async fn stop(&self) -> Result<CleanupReport> {
        let mut connection = self.connection().await?;
        match connection.call(&Request::Stop, &[], None).await? {
            (Reply::Stopped(report), _) => {
                // The connection is the last thing the supervisor lets go of.
                let _ = tokio::time::timeout(Duration::from_secs(1), connection.receive()).await;
                Ok(report)
            }
            (reply, _) => Err(unexpected(&reply)),
        }
    }

    async fn done(&self, request: &Request, data: &[u8]) -> Result<()> {
        match self.call(request, data).await? {
            Reply::Done => Ok(()),
            reply => Err(unexpected(&reply)),
        }
    }
}
