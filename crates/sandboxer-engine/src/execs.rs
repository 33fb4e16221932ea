//! Commands in a sandbox. The first one makes it `active`.

use sandboxer_core::event::NewEvent;
use sandboxer_core::exec::{ExecInfo, ExecSession, ExecSpec, LogChunk, LogStream};
use sandboxer_core::extension::{Extension, Handle};
use sandboxer_core::{Dur, Error, ErrorKind, ExecId, Result, SandboxId, State};
use sandboxer_store::{Books, LeaseChange, Step, Stored, Update};
use serde_json::json;
use std::sync::Arc;

use crate::workspace::Inside;
use crate::{Caller, Engine, Work};

impl Engine {
    /// Starts a command and gives its streams. Dropping the session ends the command.
    pub async fn exec(&self, caller: &Caller, id: SandboxId, spec: ExecSpec) -> Result<ExecSession> {
        let (stored, extension, handle) = self.usable_backend(caller, id).await?;
        let inside = || Inside { extension: extension.clone(), handle: handle.clone() };
        if let Err(error) = self.sync_before_exec(&stored, inside).await {
            return self.or_settle(stored, Err(error)).await;
        }
        let asked_at = self.now();
        // The transition and the command do not wait for each other: both are under way at once.
        let (session, marked) = tokio::join!(extension.exec(&handle, spec), self.mark_active(&stored));
        let session = session.map(|session| self.sync_after_exec(&stored, session, inside));
        if session.is_ok() {
            self.note_used(&stored, asked_at);
        }
        let session = self.or_settle(stored, session).await?;
        marked?;
        Ok(session)
    }

    /// Starts a command that outlives the caller.
    pub async fn exec_background(&self, caller: &Caller, id: SandboxId, spec: ExecSpec) -> Result<ExecInfo> {
        let (stored, extension, handle) = self.usable_backend(caller, id).await?;
        let asked_at = self.now();
        let (info, marked) =
            tokio::join!(extension.exec_background(&handle, spec), self.mark_active(&stored));
        if info.is_ok() {
            self.note_used(&stored, asked_at);
        }
        let info = self.or_settle(stored, info).await?;
        marked?;
        Ok(info)
    }

    pub async fn exec_list(&self, caller: &Caller, id: SandboxId) -> Result<Vec<ExecInfo>> {
        let (_, extension, handle) = self.usable_backend(caller, id).await?;
        extension.exec_list(&handle).await
    }

    pub async fn exec_get(&self, caller: &Caller, id: SandboxId, exec: ExecId) -> Result<ExecInfo> {
        let execs = self.exec_list(caller, id).await?;
        execs.into_iter().find(|info| info.exec_id == exec).ok_or_else(|| {
            Error::new(ErrorKind::ExecNotFound, format!("there is no exec {exec} in sandbox {id}"))
                .with_hint("only the most recent execs of a living sandbox are remembered")
        })
    }

    pub async fn exec_logs(
        &self,
        caller: &Caller,
        id: SandboxId,
        exec: ExecId,
        stream: LogStream,
        offset: u64,
        wait: Dur,
    ) -> Result<LogChunk> {
        let (_, extension, handle) = self.usable_backend(caller, id).await?;
        extension.exec_logs(&handle, exec, stream, offset, wait).await
    }

    pub async fn exec_stdin(
        &self,
        caller: &Caller,
        id: SandboxId,
        exec: ExecId,
        data: Option<Vec<u8>>,
    ) -> Result<()> {
        let (_, extension, handle) = self.usable_backend(caller, id).await?;
        extension.exec_stdin(&handle, exec, data).await
    }

    pub async fn exec_signal(&self, caller: &Caller, id: SandboxId, exec: ExecId, signal: i32) -> Result<()> {
        if !(1..=64).contains(&signal) {
            return Err(Error::new(ErrorKind::InvalidInput, format!("{signal} is not a signal"))
                .with_hint("signals go from 1 to 64"));
        }
        let (_, extension, handle) = self.usable_backend(caller, id).await?;
        extension.exec_signal(&handle, exec, signal).await
    }

    /// The row, the extension and the handle of a sandbox that can be used.
    pub(crate) fn usable_backend<'a>(
        &'a self,
        caller: &'a Caller,
        id: SandboxId,
    ) -> Work<'a, (Stored, Arc<dyn Extension>, Handle)> {
        Box::pin(async move {
            let stored = self.load_usable(caller, id).await?;
            let extension = self.extension_of(&stored.record).await?;
            let handle = stored.record.handle.clone().ok_or_else(|| {
                Error::new(ErrorKind::Internal, format!("sandbox {id} is usable and has no handle"))
            })?;
            Ok((stored, extension, handle))
        })
    }

    /// When the backend turns out to be gone, the row learns it, and the caller is told what became of the sandbox.
    pub(crate) async fn or_settle<T>(&self, stored: Stored, outcome: Result<T>) -> Result<T> {
        let error = match outcome {
            Err(error) if error.kind() == ErrorKind::SandboxNotFound => error,
            other => return other,
        };
        let id = stored.record.id();
        let settled = self.settle(stored).await?.record.sandbox;
        if settled.state.is_usable() {
            return Err(error);
        }
        let why = settled.reason.as_deref().unwrap_or("unknown reason");
        Err(Error::new(ErrorKind::IllegalState, format!("sandbox {id} is {} ({why})", settled.state))
            .with_hint(format!("`sandboxer recreate {id}` makes a new one from the same profile")))
    }

    /// `ready` becomes `active` once. Somebody else's change in between is not ours to fight: the next exec tries again.
    async fn mark_active(&self, stored: &Stored) -> Result<()> {
        if stored.record.state() != State::Ready {
            return Ok(());
        }
        let mut record = stored.record.clone();
        record.sandbox.state = State::Active;
        let event = NewEvent::transition(State::Active, self.now(), json!({}));
        let update = Update {
            record,
            expected_version: stored.version,
            steps: vec![Step { to: State::Active, event }],
            facts: Vec::new(),
            lease: LeaseChange::Keep,
            books: Books::default(),
        };
        match self.inner.store.update(update).await {
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
            other => other.map(drop),
        }
    }
}
