//! The API over HTTP: the same answers from a running server.
//!
//! `mod.rs` has the calls, `client.rs` the requests and answers, `fault.rs` errors, `session.rs` the WebSocket of a
//! command on a `patient.rs` connection, `port.rs` that of a port, `stream.rs` what goes on until it ends.

mod client;
mod fault;
mod money;
mod outgoing;
mod patient;
mod port;
mod session;
mod stream;

use async_trait::async_trait;
use reqwest::Method;
use sandboxer_core::event::Event;
use sandboxer_core::exec::{BoxRead, ExecInfo, ExecSession};
use sandboxer_core::extension::{BoxDuplex, Progress};
use sandboxer_core::files::{FileInfo, validate_path};
use sandboxer_core::ledger::Seat;
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::request::{CreateRequest, ExecRequest};
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::{
    Actor, Dur, Error, ErrorKind, EventId, ExecId, KeyId, Result, SandboxId, Snapshot, SnapshotId,
};
use sandboxer_engine::workspace::{SyncOptions, SyncReport};
use sandboxer_engine::{
    ExtensionView, ForkRequest, Forked, HostCheck, HostReport, HostView, NewHost, ProfileView, ReapRequest,
    SandboxInspection, StaleReport,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Feed, KeyView, ListQuery, LogPiece, NewKeyView, PlanView};
use client::Client;

pub(crate) struct Remote {
    client: Client,
}

impl Remote {
    pub(crate) fn new(url: &str, key: Option<String>) -> Result<Self> {
        Ok(Self { client: Client::new(url, key)? })
    }
}

#[async_trait]
impl Api for Remote {
    async fn plan(&self, request: CreateRequest) -> Result<PlanView> {
        self.client.post(&["v1", "sandboxes"]).query("dry_run", "true").json(&request)?.answer().await
    }

    async fn create(
        &self,
        request: CreateRequest,
        key: Option<String>,
        cancel: CancellationToken,
        progress: Option<Progress>,
    ) -> Result<Sandbox> {
        let mut call = self.client.post(&["v1", "sandboxes"]).json(&request)?;
        if let Some(key) = key {
            call = call.header("idempotency-key", &key)?;
        }
        match progress {
            Some(progress) => {
                let call = call.header("accept", "application/x-ndjson, application/json")?;
                or_cancelled(async { stream::created(call.body().await?, &progress).await }, cancel).await
            }
            None => or_cancelled(call.answer(), cancel).await,
        }
    }

    async fn recreate(
        &self,
        id: SandboxId,
        cancel: CancellationToken,
        _progress: Option<Progress>,
    ) -> Result<Sandbox> {
        let call = self.client.post(&["v1", "sandboxes", &id.to_string(), "recreate"]);
        or_cancelled(call.answer(), cancel).await
    }

    async fn get(&self, id: SandboxId) -> Result<Sandbox> {
        self.client.get(&["v1", "sandboxes", &id.to_string()]).answer().await
    }

    async fn list(&self, query: &ListQuery, cursor: Option<&str>, limit: Limit) -> Result<Page<Sandbox>> {
        let mut call = self.client.get(&["v1", "sandboxes"]).query("limit", &limit.get().to_string());
        if let Some(state) = query.state {
            call = call.query("state", state.as_str());
        }
        for (key, value) in &query.labels {
            call = call.query("label", &format!("{key}={value}"));
        }
        if query.all {
            call = call.query("all", "true");
        }
        if let Some(cursor) = cursor {
            call = call.query("cursor", cursor);
        }
        call.answer().await
    }

    async fn destroy(&self, id: SandboxId) -> Result<Sandbox> {
        self.client.call(Method::DELETE, &["v1", "sandboxes", &id.to_string()]).answer().await
    }

    async fn sync(&self, id: SandboxId, options: SyncOptions) -> Result<SyncReport> {
        self.client.post(&["v1", "sandboxes", &id.to_string(), "sync"]).json(&options)?.answer().await
    }

    async fn extend_ttl(&self, id: SandboxId, duration: Dur) -> Result<Sandbox> {
        let call = self.client.post(&["v1", "sandboxes", &id.to_string(), "extend"]);
        call.json(&json!({ "duration": duration }))?.answer().await
    }

    async fn expire(&self, apply: bool) -> Result<Vec<Sandbox>> {
        let page: Page<Sandbox> =
            self.client.post(&["v1", "expire"]).json(&json!({ "apply": apply }))?.answer().await?;
        Ok(page.items)
    }

    async fn pause(&self, id: SandboxId) -> Result<Sandbox> {
        self.client.post(&["v1", "sandboxes", &id.to_string(), "pause"]).answer().await
    }

    async fn resume(&self, id: SandboxId) -> Result<Sandbox> {
        self.client.post(&["v1", "sandboxes", &id.to_string(), "resume"]).answer().await
    }

    async fn fork(&self, id: SandboxId, request: ForkRequest) -> Result<Forked> {
        self.client.post(&["v1", "sandboxes", &id.to_string(), "fork"]).json(&request)?.answer().await
    }

    async fn snapshot(&self, id: SandboxId, name: Option<String>) -> Result<Snapshot> {
        let call = self.client.post(&["v1", "sandboxes", &id.to_string(), "snapshots"]);
        call.json(&json!({ "name": name }))?.answer().await
    }

    async fn snapshots(
        &self,
        sandbox: Option<SandboxId>,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<Snapshot>> {
        let mut call = self.client.get(&["v1", "snapshots"]).query("limit", &limit.get().to_string());
        if let Some(sandbox) = sandbox {
            call = call.query("sandbox", &sandbox.to_string());
        }
        if let Some(cursor) = cursor {
            call = call.query("cursor", cursor);
        }
        call.answer().await
    }

    async fn snapshot_get(&self, id: SnapshotId) -> Result<Snapshot> {
        self.client.get(&["v1", "snapshots", &id.to_string()]).answer().await
    }

    async fn snapshot_delete(&self, id: SnapshotId) -> Result<Snapshot> {
        self.client.call(Method::DELETE, &["v1", "snapshots", &id.to_string()]).answer().await
    }

    async fn port(&self, id: SandboxId, port: u16) -> Result<BoxDuplex> {
        port::open(&self.client, id, port).await
    }

    async fn backend_logs(&self, id: SandboxId, follow: bool) -> Result<BoxRead> {
        let call = self.client.get(&["v1", "sandboxes", &id.to_string(), "logs"]);
        call.query("follow", if follow { "true" } else { "false" }).body().await
    }

    async fn exec(&self, id: SandboxId, request: ExecRequest, stdin: bool) -> Result<(ExecId, ExecSession)> {
        // The same refusals as without a server, before anything is sent.
        request.to_spec(ExecId::generate(), stdin)?;
        session::open(&self.client, id, &request, stdin).await
    }

    async fn exec_background(&self, id: SandboxId, request: ExecRequest) -> Result<ExecInfo> {
        self.client.post(&["v1", "sandboxes", &id.to_string(), "execs"]).json(&request)?.answer().await
    }

    async fn exec_list(&self, id: SandboxId) -> Result<Vec<ExecInfo>> {
        let page: Page<ExecInfo> =
            self.client.get(&["v1", "sandboxes", &id.to_string(), "execs"]).answer().await?;
        Ok(page.items)
    }

    async fn logs(&self, id: SandboxId, exec: ExecId, follow: bool) -> Result<Feed<LogPiece>> {
        let path = ["v1", "sandboxes", &id.to_string(), "execs", &exec.to_string(), "stream"];
        let mut call = self.client.get(&path).query("encoding", "base64");
        if follow {
            call = call.query("follow", "true");
        }
        Ok(stream::logs(call.header("accept", "application/x-ndjson")?.body().await?))
    }

    async fn file_stat(&self, id: SandboxId, path: &str) -> Result<FileInfo> {
        validate_path(path)?;
        self.client
            .get(&["v1", "sandboxes", &id.to_string(), "files", "stat"])
            .query("path", path)
            .answer()
            .await
    }

    async fn file_read(&self, id: SandboxId, path: &str) -> Result<BoxRead> {
        validate_path(path)?;
        self.client.get(&["v1", "sandboxes", &id.to_string(), "files"]).query("path", path).body().await
    }

    async fn file_write(&self, id: SandboxId, path: &str, mode: u32, data: BoxRead) -> Result<()> {
        validate_path(path)?;
        let call = self.client.call(Method::PUT, &["v1", "sandboxes", &id.to_string(), "files"]);
        let call = call.query("path", path).query("mode", &format!("{mode:04o}"));
        call.upload("application/octet-stream", data)?.done().await
    }

    async fn archive_get(&self, id: SandboxId, path: &str) -> Result<BoxRead> {
        validate_path(path)?;
        self.client.get(&["v1", "sandboxes", &id.to_string(), "archive"]).query("path", path).body().await
    }

    async fn archive_put(&self, id: SandboxId, path: &str, tar: BoxRead) -> Result<()> {
        validate_path(path)?;
        let call = self.client.call(Method::PUT, &["v1", "sandboxes", &id.to_string(), "archive"]);
        call.query("path", path).upload("application/x-tar", tar)?.done().await
    }

    async fn profiles(&self) -> Result<Vec<ProfileView>> {
        let page: Page<ProfileView> = self.client.get(&["v1", "profiles"]).answer().await?;
        Ok(page.items)
    }

    async fn profile(&self, name: &str) -> Result<ProfileView> {
        self.client.get(&["v1", "profiles", name]).answer().await
    }

    async fn extensions(&self) -> Result<Vec<ExtensionView>> {
        let page: Page<ExtensionView> = self.client.get(&["v1", "extensions"]).answer().await?;
        Ok(page.items)
    }

    async fn extension(&self, id: &str) -> Result<ExtensionView> {
        self.client.get(&["v1", "extensions", id]).answer().await
    }

    async fn inspect_host(&self, host: Option<&str>) -> Result<HostReport> {
        let call = self.client.get(&["v1", "inspect", "host"]);
        let call = match host {
            Some(host) => call.query("host", host),
            None => call,
        };
        call.answer().await
    }

    async fn reap_stale(&self, request: &ReapRequest) -> Result<StaleReport> {
        self.client.post(&["v1", "reap-stale"]).json(request)?.answer().await
    }

    async fn hosts(&self) -> Result<Vec<HostView>> {
        let page: Page<HostView> = self.client.get(&["v1", "hosts"]).answer().await?;
        Ok(page.items)
    }

    async fn host_add(&self, host: &NewHost) -> Result<HostView> {
        self.client.post(&["v1", "hosts"]).json(host)?.answer().await
    }

    async fn host_remove(&self, name: &str) -> Result<HostView> {
        self.client.call(Method::DELETE, &["v1", "hosts", name]).answer().await
    }

    async fn host_check(&self, name: &str) -> Result<HostCheck> {
        self.client.post(&["v1", "hosts", name, "check"]).answer().await
    }

    async fn inspect_sandbox(&self, id: SandboxId) -> Result<SandboxInspection> {
        self.client.get(&["v1", "inspect", "sandboxes", &id.to_string()]).answer().await
    }

    async fn events(
        &self,
        subject: Option<SandboxId>,
        after: Option<EventId>,
        limit: Limit,
    ) -> Result<Vec<Event>> {
        let mut call = self.events_call(subject).query("limit", &limit.get().to_string());
        if let Some(after) = after {
            call = call.query("after", &after.to_string());
        }
        let page: Page<Event> = call.answer().await?;
        Ok(page.items)
    }

    async fn follow_events(&self, subject: Option<SandboxId>, after: Option<EventId>) -> Result<Feed<Event>> {
        stream::events(self.client.clone(), subject, after).await
    }

    async fn key_create(
        &self,
        name: &str,
        actor: Actor,
        expires_in: Option<Dur>,
        seat: Seat,
    ) -> Result<NewKeyView> {
        let Seat { organisation, workspace } = seat;
        let mut body =
            json!({ "name": name, "actor": actor, "organisation": organisation, "workspace": workspace });
        if let Some(expires_in) = expires_in {
            body["expires_in"] = json!(expires_in);
        }
        self.client.post(&["v1", "keys"]).json(&body)?.answer().await
    }

    async fn key_list(&self) -> Result<Vec<KeyView>> {
        let page: Page<KeyView> = self.client.get(&["v1", "keys"]).answer().await?;
        Ok(page.items)
    }

    async fn key_revoke(&self, id: KeyId) -> Result<KeyView> {
        self.client.call(Method::DELETE, &["v1", "keys", &id.to_string()]).answer().await
    }

    async fn owes_delivery(&self) -> bool {
        // The server delivers by itself.
        false
    }
}

impl Remote {
    fn events_call(&self, subject: Option<SandboxId>) -> client::Call {
        stream::events_call(&self.client, subject)
    }
}

/// Going away is how a server is told to stop: it removes what it has made so far.
async fn or_cancelled<T>(work: impl Future<Output = Result<T>>, cancel: CancellationToken) -> Result<T> {
    tokio::select! {
        biased;
        done = work => done,
        () = cancel.cancelled() => Err(Error::new(ErrorKind::Cancelled, "the create was cancelled")),
    }
}
