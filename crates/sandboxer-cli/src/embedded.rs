//! The API on the engine of this process: no server, the local store.

mod money;
mod outgoing;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use sandboxer_core::event::Event;
use sandboxer_core::exec::{BoxRead, ExecInfo, ExecSession, LogStream};
use sandboxer_core::extension::{BoxDuplex, Progress};
use sandboxer_core::files::FileInfo;
use sandboxer_core::ledger::Seat;
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::request::{CreateRequest, ExecRequest};
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::{Actor, Dur, EventId, ExecId, KeyId, Result, SandboxId, Snapshot, SnapshotId};
use sandboxer_engine::workspace::{SyncOptions, SyncReport};
use sandboxer_engine::{
    Caller, CreateOptions, Engine, ExtensionView, ForkRequest, Forked, HostCheck, HostReport, HostView,
    NewHost, ProfileView, ReapRequest, SandboxInspection, StaleReport,
};
use sandboxer_store::{Filter, SnapshotFilter};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Feed, KeyView, ListQuery, LogPiece, NewKeyView, PlanView};
use crate::trial::{self, Trial, TrialWish};

/// How long one look at a growing log or at new events waits.
const WAIT: Duration = Duration::from_secs(2);
/// How long a command that has answered waits for what is still to be written down.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits for what was superfluous to be taken down.
const SHORTLY: Duration = Duration::from_millis(300);
/// Pieces on their way to the terminal at most.
const QUEUE: usize = 16;

pub(crate) struct Embedded {
    engine: Engine,
    /// Whoever may open the store's files is its admin.
    caller: Caller,
    /// Somebody listens to events elsewhere.
    has_sinks: bool,
    wrote: AtomicBool,
}

impl Embedded {
    pub(crate) fn new(engine: Engine, has_sinks: bool) -> Self {
        Self { engine, caller: Caller::local_admin(), has_sinks, wrote: AtomicBool::new(false) }
    }

    /// The engine for what may have changed a row, which every look at a sandbox may.
    fn writing(&self) -> &Engine {
        self.wrote.store(true, Ordering::Relaxed);
        &self.engine
    }
}

#[async_trait]
impl Api for Embedded {
    async fn plan(&self, request: CreateRequest) -> Result<PlanView> {
        self.engine.plan_for(&self.caller, &request).await.map(PlanView::from)
    }

    async fn create(
        &self,
        request: CreateRequest,
        key: Option<String>,
        cancel: CancellationToken,
        progress: Option<Progress>,
    ) -> Result<Sandbox> {
        let progress = progress.unwrap_or_default();
        let options = CreateOptions { idempotency_key: key, cancel, respond_async: false, progress };
        Ok(self.writing().create(&self.caller, request, options).await?.sandbox)
    }

    async fn recreate(
        &self,
        id: SandboxId,
        cancel: CancellationToken,
        progress: Option<Progress>,
    ) -> Result<Sandbox> {
        let progress = progress.unwrap_or_default();
        let options = CreateOptions { cancel, progress, ..CreateOptions::default() };
        Ok(self.writing().recreate(&self.caller, id, options).await?.sandbox)
    }

    async fn get(&self, id: SandboxId) -> Result<Sandbox> {
        self.writing().get(&self.caller, id).await
    }

    async fn list(&self, query: &ListQuery, cursor: Option<&str>, limit: Limit) -> Result<Page<Sandbox>> {
        // Nobody else looks after the rows here. Once is enough for all pages of one answer.
        if cursor.is_none() {
            self.writing().refresh().await?;
        }
        let filter =
            Filter { state: query.state, labels: query.labels.clone(), all: query.all, ..Filter::default() };
        self.engine.list(&self.caller, filter, cursor, limit).await
    }

    async fn destroy(&self, id: SandboxId) -> Result<Sandbox> {
        self.writing().destroy(&self.caller, id).await
    }

    async fn sync(&self, id: SandboxId, options: SyncOptions) -> Result<SyncReport> {
        self.writing().sync(&self.caller, id, options).await
    }

    async fn extend_ttl(&self, id: SandboxId, duration: Dur) -> Result<Sandbox> {
        self.writing().extend_ttl(&self.caller, id, duration).await
    }

    async fn expire(&self, apply: bool) -> Result<Vec<Sandbox>> {
        self.writing().expire(&self.caller, apply).await
    }

    async fn pause(&self, id: SandboxId) -> Result<Sandbox> {
        self.writing().pause(&self.caller, id).await
    }

    async fn resume(&self, id: SandboxId) -> Result<Sandbox> {
        self.writing().resume(&self.caller, id).await
    }

    async fn fork(&self, id: SandboxId, request: ForkRequest) -> Result<Forked> {
        self.writing().fork(&self.caller, id, request).await
    }

    async fn snapshot(&self, id: SandboxId, name: Option<String>) -> Result<Snapshot> {
        self.writing().snapshot(&self.caller, id, name).await
    }

    async fn snapshots(
        &self,
        sandbox: Option<SandboxId>,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<Snapshot>> {
        let filter = SnapshotFilter { sandbox, owner_key: None };
        self.engine.snapshot_list(&self.caller, filter, cursor, limit).await
    }

    async fn snapshot_get(&self, id: SnapshotId) -> Result<Snapshot> {
        self.engine.snapshot_get(&self.caller, id).await
    }

    async fn snapshot_delete(&self, id: SnapshotId) -> Result<Snapshot> {
        self.writing().snapshot_delete(&self.caller, id).await
    }

    async fn port(&self, id: SandboxId, port: u16) -> Result<BoxDuplex> {
        self.engine.port_connect(&self.caller, id, port).await
    }

    async fn backend_logs(&self, id: SandboxId, follow: bool) -> Result<BoxRead> {
        self.engine.backend_logs(&self.caller, id, follow).await
    }

    async fn exec(&self, id: SandboxId, request: ExecRequest, stdin: bool) -> Result<(ExecId, ExecSession)> {
        let exec_id = ExecId::generate();
        let spec = request.to_spec(exec_id, stdin)?;
        Ok((exec_id, self.writing().exec(&self.caller, id, spec).await?))
    }

    async fn exec_background(&self, id: SandboxId, request: ExecRequest) -> Result<ExecInfo> {
        let spec = request.to_spec(ExecId::generate(), false)?;
        self.writing().exec_background(&self.caller, id, spec).await
    }

    async fn exec_list(&self, id: SandboxId) -> Result<Vec<ExecInfo>> {
        self.engine.exec_list(&self.caller, id).await
    }

    async fn logs(&self, id: SandboxId, exec: ExecId, follow: bool) -> Result<Feed<LogPiece>> {
        // What is not there is said before the first piece.
        self.engine.exec_get(&self.caller, id, exec).await?;
        let (sender, feed) = mpsc::channel(QUEUE);
        let (engine, caller) = (self.engine.clone(), self.caller.clone());
        tokio::spawn(async move {
            let copy = |stream| copy_log(&engine, &caller, (id, exec), stream, follow, &sender);
            let copied = tokio::try_join!(copy(LogStream::Stdout), copy(LogStream::Stderr));
            let last = match copied {
                Ok(_) => {
                    engine.exec_get(&caller, id, exec).await.map(|info| info.outcome.map(LogPiece::Exit))
                }
                Err(error) => Err(error),
            };
            if let Some(last) = last.transpose() {
                let _ = sender.send(last).await;
            }
        });
        Ok(feed)
    }

    async fn file_stat(&self, id: SandboxId, path: &str) -> Result<FileInfo> {
        self.engine.file_stat(&self.caller, id, path).await
    }

    async fn file_read(&self, id: SandboxId, path: &str) -> Result<BoxRead> {
        self.engine.file_read(&self.caller, id, path).await
    }

    async fn file_write(&self, id: SandboxId, path: &str, mode: u32, data: BoxRead) -> Result<()> {
        self.engine.file_write(&self.caller, id, path, mode, data).await
    }

    async fn archive_get(&self, id: SandboxId, path: &str) -> Result<BoxRead> {
        self.engine.archive_get(&self.caller, id, path).await
    }

    async fn archive_put(&self, id: SandboxId, path: &str, tar: BoxRead) -> Result<()> {
        self.engine.archive_put(&self.caller, id, path, tar).await
    }

    async fn profiles(&self) -> Result<Vec<ProfileView>> {
        self.engine.profiles().await
    }

    async fn profile(&self, name: &str) -> Result<ProfileView> {
        self.engine.profile(name).await
    }

    async fn extensions(&self) -> Result<Vec<ExtensionView>> {
        Ok(self.engine.extensions().await)
    }

    async fn extension(&self, id: &str) -> Result<ExtensionView> {
        self.engine.extension(id).await
    }

    async fn try_extension(&self, id: &str, wish: TrialWish) -> Result<Option<Trial>> {
        trial::run(&self.engine, id, wish).await.map(Some)
    }

    async fn inspect_host(&self, host: Option<&str>) -> Result<HostReport> {
        self.writing().refresh().await?;
        self.engine.inspect_host(&self.caller, host).await
    }

    async fn reap_stale(&self, request: &ReapRequest) -> Result<StaleReport> {
        self.writing().reap_stale(&self.caller, request).await
    }

    async fn hosts(&self) -> Result<Vec<HostView>> {
        self.engine.hosts(&self.caller).await
    }

    async fn host_add(&self, host: &NewHost) -> Result<HostView> {
        self.engine.host_add(&self.caller, host).await
    }

    async fn host_remove(&self, name: &str) -> Result<HostView> {
        self.engine.host_remove(&self.caller, name).await
    }

    async fn host_check(&self, name: &str) -> Result<HostCheck> {
        self.engine.host_check(&self.caller, name).await
    }

    async fn inspect_sandbox(&self, id: SandboxId) -> Result<SandboxInspection> {
        self.writing().inspect_sandbox(&self.caller, id).await
    }

    async fn events(
        &self,
        subject: Option<SandboxId>,
        after: Option<EventId>,
        limit: Limit,
    ) -> Result<Vec<Event>> {
        let position = self.engine.position_after(after).await?;
        let placed = self.engine.events(&self.caller, subject, position, limit).await?;
        Ok(placed.into_iter().map(|placed| placed.event).collect())
    }

    async fn follow_events(&self, subject: Option<SandboxId>, after: Option<EventId>) -> Result<Feed<Event>> {
        let mut position = self.engine.position_after(after).await?;
        // A sandbox that is not there is said now and not in the middle of the stream.
        self.engine.events(&self.caller, subject, position, Limit::DEFAULT).await?;
        let (sender, feed) = mpsc::channel(QUEUE);
        let (engine, caller) = (self.engine.clone(), self.caller.clone());
        tokio::spawn(async move {
            loop {
                let batch = engine.next_events(&caller, subject, position, Limit::DEFAULT, WAIT).await;
                let events = match batch {
                    Ok(events) => events,
                    Err(error) => {
                        let _ = sender.send(Err(error)).await;
                        return;
                    }
                };
                for placed in events {
                    position = placed.position;
                    if sender.send(Ok(placed.event)).await.is_err() {
                        return;
                    }
                }
                if sender.is_closed() {
                    return;
                }
            }
        });
        Ok(feed)
    }

    async fn key_create(
        &self,
        name: &str,
        actor: Actor,
        expires_in: Option<Dur>,
        seat: Seat,
    ) -> Result<NewKeyView> {
        let made = self.engine.key_create(&self.caller, name, actor, expires_in, seat).await?;
        Ok(NewKeyView { key: made.record.into(), secret: made.secret })
    }

    async fn key_list(&self) -> Result<Vec<KeyView>> {
        Ok(self.engine.key_list(&self.caller).await?.into_iter().map(KeyView::from).collect())
    }

    async fn key_revoke(&self, id: KeyId) -> Result<KeyView> {
        self.engine.key_revoke(&self.caller, id).await.map(KeyView::from)
    }

    async fn finish(&self) {
        let _ = tokio::time::timeout(PATIENCE, self.engine.noted()).await;
        // What lost a race stays written down, and the next command that looks goes on with it.
        let _ = tokio::time::timeout(SHORTLY, self.engine.idle()).await;
    }

    async fn owes_delivery(&self) -> bool {
        if !self.wrote.load(Ordering::Relaxed) {
            return false;
        }
        // What cannot be asked now is asked by the next command.
        let due = || async { self.engine.store().webhooks_due(self.engine.now()).await.unwrap_or_default() };
        self.has_sinks || !due().await.is_empty()
    }
}

/// Sends one stream of a background exec until its end, or what is there when nobody wants to wait.
async fn copy_log(
    engine: &Engine,
    caller: &Caller,
    (id, exec): (SandboxId, ExecId),
    stream: LogStream,
    follow: bool,
    sender: &mpsc::Sender<Result<LogPiece>>,
) -> Result<()> {
    let wait = if follow { Dur::from_millis(WAIT.as_millis() as u64) } else { Dur::ZERO };
    let mut offset = 0;
    loop {
        let chunk = engine.exec_logs(caller, id, exec, stream, offset, wait).await?;
        let idle = chunk.data.is_empty() && chunk.skipped == 0;
        offset = chunk.next_offset;
        if !idle {
            let piece = LogPiece::Output { stream, data: chunk.data, skipped: chunk.skipped };
            if sender.send(Ok(piece)).await.is_err() {
                return Ok(());
            }
        }
        if sender.is_closed() || (idle && (chunk.finished || !follow)) {
            return Ok(());
        }
    }
}
