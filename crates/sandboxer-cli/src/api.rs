//! Everything that commands ask for. Two answer: the engine in this process, and a server over HTTP.

mod money;
mod outgoing;

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::event::Event;
use sandboxer_core::exec::{BoxRead, ExecInfo, ExecOutcome, ExecSession, LogStream};
use sandboxer_core::extension::{BoxDuplex, Progress};
use sandboxer_core::files::FileInfo;
use sandboxer_core::ledger::Seat;
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::profile::Scope;
use sandboxer_core::request::{CreateRequest, ExecRequest};
use sandboxer_core::route::RouteDecision;
use sandboxer_core::sandbox::{Quote, Sandbox};
use sandboxer_core::{Actor, Dur, EventId, ExecId, KeyId, Result, SandboxId, Snapshot, SnapshotId, State};
use sandboxer_engine::workspace::{SyncOptions, SyncReport};
use sandboxer_engine::{
    ExtensionView, ForkRequest, Forked, HostCheck, HostReport, HostView, NewHost, Plan, ProfileView,
    ReapRequest, SandboxInspection, StaleReport,
};
use sandboxer_store::KeyRecord;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::trial::{Trial, TrialWish};

pub(crate) use money::{MeterQuery, MoneyApi, UsageQuery};
pub(crate) use outgoing::OutgoingApi;

/// What a create would do, as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlanView {
    pub(crate) profile: String,
    pub(crate) ttl: Dur,
    pub(crate) scope: Scope,
    pub(crate) extension: Option<String>,
    pub(crate) host: String,
    pub(crate) route: RouteDecision,
    pub(crate) quote: Quote,
}

impl From<Plan> for PlanView {
    fn from(plan: Plan) -> Self {
        let Plan { profile, ttl, scope, extension, host, route, quote, .. } = plan;
        Self { profile, ttl, scope, extension, host, route, quote }
    }
}

/// A key without its hash, which is nobody's business.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeyView {
    pub(crate) key_id: KeyId,
    pub(crate) name: String,
    pub(crate) actor: Actor,
    pub(crate) organisation: String,
    pub(crate) workspace: String,
    pub(crate) created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revoked_at: Option<Timestamp>,
}

impl From<KeyRecord> for KeyView {
    fn from(key: KeyRecord) -> Self {
        let KeyRecord {
            key_id,
            name,
            actor,
            organisation,
            workspace,
            created_at,
            expires_at,
            revoked_at,
            ..
        } = key;
        Self { key_id, name, actor, organisation, workspace, created_at, expires_at, revoked_at }
    }
}

/// A key that was just made, with the only copy of its secret.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct NewKeyView {
    #[serde(flatten)]
    pub(crate) key: KeyView,
    pub(crate) secret: String,
}

/// Which sandboxes to list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListQuery {
    pub(crate) state: Option<State>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) all: bool,
}

/// A piece of what a background exec wrote, or its end.
#[derive(Clone, Debug)]
pub(crate) enum LogPiece {
    /// `skipped` bytes before `data` were produced and not kept.
    Output {
        stream: LogStream,
        data: Vec<u8>,
        skipped: u64,
    },
    Exit(ExecOutcome),
}

/// A bounded queue that a task of the API fills.
pub(crate) type Feed<T> = mpsc::Receiver<Result<T>>;

#[async_trait]
pub(crate) trait Api: MoneyApi + OutgoingApi + Send + Sync {
    async fn plan(&self, request: CreateRequest) -> Result<PlanView>;
    /// Cancelling before the sandbox is ready removes everything again.
    async fn create(
        &self,
        request: CreateRequest,
        key: Option<String>,
        cancel: CancellationToken,
        progress: Option<Progress>,
    ) -> Result<Sandbox>;
    async fn recreate(
        &self,
        id: SandboxId,
        cancel: CancellationToken,
        progress: Option<Progress>,
    ) -> Result<Sandbox>;
    async fn get(&self, id: SandboxId) -> Result<Sandbox>;
    async fn list(&self, query: &ListQuery, cursor: Option<&str>, limit: Limit) -> Result<Page<Sandbox>>;
    async fn destroy(&self, id: SandboxId) -> Result<Sandbox>;
    async fn extend_ttl(&self, id: SandboxId, duration: Dur) -> Result<Sandbox>;
    async fn expire(&self, apply: bool) -> Result<Vec<Sandbox>>;

    async fn pause(&self, id: SandboxId) -> Result<Sandbox>;
    async fn resume(&self, id: SandboxId) -> Result<Sandbox>;
    async fn fork(&self, id: SandboxId, request: ForkRequest) -> Result<Forked>;
    async fn snapshot(&self, id: SandboxId, name: Option<String>) -> Result<Snapshot>;
    async fn snapshots(
        &self,
        sandbox: Option<SandboxId>,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<Snapshot>>;
    async fn snapshot_get(&self, id: SnapshotId) -> Result<Snapshot>;
    async fn snapshot_delete(&self, id: SnapshotId) -> Result<Snapshot>;

    /// A connection to what listens on a port inside.
    async fn port(&self, id: SandboxId, port: u16) -> Result<BoxDuplex>;
    /// What the backend itself logged.
    async fn backend_logs(&self, id: SandboxId, follow: bool) -> Result<BoxRead>;

    /// Starts a command with its streams; `stdin` says whether any will come.
    async fn exec(&self, id: SandboxId, request: ExecRequest, stdin: bool) -> Result<(ExecId, ExecSession)>;
    async fn exec_background(&self, id: SandboxId, request: ExecRequest) -> Result<ExecInfo>;
    async fn exec_list(&self, id: SandboxId) -> Result<Vec<ExecInfo>>;
    /// Kept output from the beginning on; with `follow` until the command ends.
    async fn logs(&self, id: SandboxId, exec: ExecId, follow: bool) -> Result<Feed<LogPiece>>;

    async fn file_stat(&self, id: SandboxId, path: &str) -> Result<FileInfo>;
    async fn file_read(&self, id: SandboxId, path: &str) -> Result<BoxRead>;
    async fn file_write(&self, id: SandboxId, path: &str, mode: u32, data: BoxRead) -> Result<()>;
    async fn archive_get(&self, id: SandboxId, path: &str) -> Result<BoxRead>;
    async fn archive_put(&self, id: SandboxId, path: &str, tar: BoxRead) -> Result<()>;
    /// Brings a mirror and its folder together.
    async fn sync(&self, id: SandboxId, options: SyncOptions) -> Result<SyncReport>;

    async fn profiles(&self) -> Result<Vec<ProfileView>>;
    async fn profile(&self, name: &str) -> Result<ProfileView>;
    async fn extensions(&self) -> Result<Vec<ExtensionView>>;
    async fn extension(&self, id: &str) -> Result<ExtensionView>;
    /// Tries an extension out with a small sandbox; nothing where that cannot be done from here.
    async fn try_extension(&self, _id: &str, _wish: TrialWish) -> Result<Option<Trial>> {
        Ok(None)
    }
    /// The engine's own machine, or the host of this name.
    async fn inspect_host(&self, host: Option<&str>) -> Result<HostReport>;
    async fn reap_stale(&self, request: &ReapRequest) -> Result<StaleReport>;
    async fn hosts(&self) -> Result<Vec<HostView>>;
    async fn host_add(&self, host: &NewHost) -> Result<HostView>;
    async fn host_remove(&self, name: &str) -> Result<HostView>;
    async fn host_check(&self, name: &str) -> Result<HostCheck>;
    async fn inspect_sandbox(&self, id: SandboxId) -> Result<SandboxInspection>;

    /// Oldest first; fewer than the limit means that there are no more.
    async fn events(
        &self,
        subject: Option<SandboxId>,
        after: Option<EventId>,
        limit: Limit,
    ) -> Result<Vec<Event>>;
    /// Events as they come: after the given one, or from now on.
    async fn follow_events(&self, subject: Option<SandboxId>, after: Option<EventId>) -> Result<Feed<Event>>;

    async fn key_create(
        &self,
        name: &str,
        actor: Actor,
        expires_in: Option<Dur>,
        seat: Seat,
    ) -> Result<NewKeyView>;
    async fn key_list(&self) -> Result<Vec<KeyView>>;
    async fn key_revoke(&self, id: KeyId) -> Result<KeyView>;

    /// Waits for what the answer did not wait for: what was learned about backends, and the slower of two creates.
    async fn finish(&self) {}

    /// Something was written that has to be delivered, and nobody else will do it.
    async fn owes_delivery(&self) -> bool;
}
