//! The contract, method by method. What the manifest does not declare is refused without asking the process.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::exec::{BoxRead, ExecInfo, ExecSession, ExecSpec, LogChunk, LogStream};
use sandboxer_core::extension::{
    BackendStatus, BoxDuplex, CheckItem, CheckReport, CleanupReport, Credential, Description, Extension,
    Found, Handle, Life, ProvisionRequest, Reachability,
};
use sandboxer_core::files::FileInfo;
use sandboxer_core::snapshot::Taken;
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{Dur, Error, ErrorKind, ExecId, Result, SnapshotId};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::call::{Request, lie, typed};
use crate::keeper::Keeper;
use crate::manifest::Manifest;
use crate::streams::{self, PortStream};
use crate::wire::{self, CHUNK, Stream};
use crate::{exec, params};

/// An extension whose work is done by a process of its own.
pub struct ProcessExtension {
    keeper: Arc<Keeper>,
    /// The workspace's own at the provider; it goes with every request, through the pipe.
    key: Option<Credential>,
}

impl ProcessExtension {
    /// Nothing is started yet.
    pub fn new(manifest: Manifest) -> Self {
        Self { keeper: Arc::new(Keeper::new(manifest)), key: None }
    }

    fn manifest(&self) -> &Manifest {
        &self.keeper.manifest
    }

    fn need(&self, declared: bool, what: &str) -> Result<()> {
        if declared { Ok(()) } else { Err(self.unsupported(what)) }
    }

    /// The parameters of a request with the key, if there is one.
    fn keyed(&self, mut params: Value) -> Value {
        if let (Some(key), Some(params)) = (&self.key, params.as_object_mut()) {
            params.insert("credential".into(), key.expose().into());
        }
        params
    }

    async fn ask<T: DeserializeOwned>(&self, method: &str, params: Value) -> Result<T> {
        self.ask_within(method, params, self.manifest().timeouts.default).await
    }

    async fn ask_within<T: DeserializeOwned>(&self, method: &str, params: Value, limit: Dur) -> Result<T> {
        typed(self.keeper.id(), method, self.keeper.call(method, self.keyed(params), limit).await?)
    }

    /// A request whose answer does not matter, only that it came.
    async fn tell(&self, method: &str, params: Value) -> Result<()> {
        self.keeper.call(method, self.keyed(params), self.manifest().timeouts.default).await.map(drop)
    }

    /// A request that answers with a stream.
    async fn stream(&self, method: &str, params: Value) -> Result<BoxRead> {
        let connection = self.keeper.connection().await?;
        let params = self.keyed(params);
        let ask = async {
            let (mut request, mut readers) =
                Request::open(&connection, method, params, &[Stream::Data]).await?;
            request.started().await?;
            let reader = readers.pop().ok_or_else(|| lie(self.keeper.id(), method, "it has no stream"))?;
            Ok(reader.holding(request))
        };
        self.keeper.within(&connection, method, self.manifest().timeouts.default, ask).await
    }

    /// A request that is fed with a stream. The source may take its time, the process may not.
    async fn feed(&self, method: &str, params: Value, mut source: BoxRead) -> Result<()> {
        let limit = self.manifest().timeouts.default;
        let connection = self.keeper.connection().await?;
        let open = Request::open(&connection, method, self.keyed(params), &[]);
        let (mut request, _) = self.keeper.within(&connection, method, limit, open).await?;
        let feeder = request.feeder();
        let mut chunk = vec![0; CHUNK];
        loop {
            let count = tokio::select! {
                biased;
                early = request.answer(|_| {}) => return early.map(drop),
                count = source.read(&mut chunk) => count.map_err(|error| {
                    Error::new(ErrorKind::BackendFailed, "the data to write broke off").with_source(error)
                })?,
            };
            if count == 0 {
                break;
            }
            let fed = async { Ok(feeder.feed(&chunk[..count]).await) };
            if !self.keeper.within(&connection, method, limit, fed).await? {
                break;
            }
        }
        feeder.end().await;
        let answer = async { request.answer(|_| {}).await };
        self.keeper.within(&connection, method, limit, answer).await.map(drop)
    }

    /// A handle must be of what was asked for, and claim no more than the manifest declares.
    fn checked(&self, request: &ProvisionRequest, handle: Handle) -> Result<Handle> {
        let declared = self.manifest().capability.isolation;
        let wrong = if handle.tag != request.tag {
            "the handle has another tag"
        } else if handle.host != request.host {
            "the handle is on another host"
        } else if handle.effective > declared {
            "the handle claims more isolation than the manifest declares"
        } else {
            return Ok(handle);
        };
        Err(lie(self.keeper.id(), "provision", wrong))
    }
}

#[async_trait]
impl Extension for ProcessExtension {
    fn describe(&self) -> Description {
        self.manifest().description()
    }

    async fn check(&self, host: &str) -> Result<CheckReport> {
        match self.ask("check", json!({ "host": host })).await {
            Ok(report) => Ok(report),
            // A process that does not work is what a check is there to say.
            Err(error) => {
                let item = CheckItem {
                    name: "process".into(),
                    ok: false,
                    required: true,
                    detail: error.chain().join(": "),
                    hint: error.hint().map(str::to_owned),
                };
                Ok(CheckReport { ok: false, items: vec![item] })
            }
        }
    }

    fn with_key(&self, key: &Credential) -> Option<Arc<dyn Extension>> {
        Some(Arc::new(Self { keeper: self.keeper.clone(), key: Some(key.clone()) }))
    }

    fn provision_timeout(&self, _spec: &SandboxSpec) -> Option<Dur> {
        Some(self.manifest().timeouts.provision)
    }

    async fn provision(&self, request: ProvisionRequest) -> Result<Handle> {
        if request.from.is_some() {
            self.need(self.manifest().capability.restore, "starting from a snapshot")?;
        }
        let limit = self.manifest().timeouts.provision;
        let params = self.keyed(params::provision(&request));
        let answer = self.keeper.call_with("provision", params, limit, &request.progress).await?;
        self.checked(&request, typed(self.keeper.id(), "provision", answer)?)
    }

    async fn wait_ready(&self, handle: &Handle) -> Result<Reachability> {
        self.ask_within("wait_ready", json!({ "handle": handle }), self.manifest().timeouts.provision).await
    }

    async fn teardown(&self, host: &str, tag: &str, handle: Option<&Handle>) -> Result<CleanupReport> {
        let params = json!({ "host": host, "tag": tag, "handle": handle });
        self.ask_within("teardown", params, self.manifest().timeouts.teardown).await
    }

    async fn list(&self, host: &str, tag_prefix: &str) -> Result<Vec<Found>> {
        let found: Vec<Found> = self.ask("list", json!({ "host": host, "tag_prefix": tag_prefix })).await?;
        match found.iter().find(|found| !found.tag.starts_with(tag_prefix)) {
            // What is found here may be removed, so that nothing else may slip in.
            Some(stranger) => Err(lie(
                self.keeper.id(),
                "list",
                &format!(
                    "`{}` does not start with `{tag_prefix}`",
                    sandboxer_core::suggest::printable(&stranger.tag)
                ),
            )),
            None => Ok(found),
        }
    }

    async fn status(&self, handle: &Handle) -> Result<BackendStatus> {
        self.ask("status", json!({ "handle": handle })).await
    }

    async fn life(&self, handle: &Handle) -> Result<Life> {
        let told: params::Alive = self.ask("is_alive", json!({ "handle": handle })).await?;
        Ok(told.into())
    }

    async fn extend(&self, handle: &Handle, expires_at: Timestamp) -> Result<()> {
        self.need(self.manifest().capability.extend_ttl, "extending the TTL")?;
        self.tell("extend", json!({ "handle": handle, "expires_at": expires_at })).await
    }

    async fn exec(&self, handle: &Handle, spec: ExecSpec) -> Result<ExecSession> {
        let capability = &self.manifest().capability;
        self.need(capability.exec, "exec")?;
        self.need(capability.exec_tty || spec.tty.is_none(), "terminals")?;
        self.need(capability.exec_user || spec.user.is_none(), "choosing the user of a command")?;
        self.need(capability.exec_stdin || !spec.stdin, "input of commands")?;
        let params = self.keyed(json!({ "handle": handle, "spec": params::exec(&spec) }));
        exec::start(&self.keeper, params, spec).await
    }

    async fn exec_background(&self, handle: &Handle, spec: ExecSpec) -> Result<ExecInfo> {
        self.need(self.manifest().capability.exec_background, "background execs")?;
        self.ask("exec_background", json!({ "handle": handle, "spec": params::exec(&spec) })).await
    }

    async fn exec_list(&self, handle: &Handle) -> Result<Vec<ExecInfo>> {
        self.need(self.manifest().capability.exec_background, "background execs")?;
        self.ask("exec_list", json!({ "handle": handle })).await
    }

    async fn exec_logs(
        &self,
        handle: &Handle,
        id: ExecId,
        stream: LogStream,
        offset: u64,
        wait: Dur,
    ) -> Result<LogChunk> {
        self.need(self.manifest().capability.exec_background, "background execs")?;
        let wait_ms = wait.as_millis();
        let params = json!({ "handle": handle, "exec_id": id, "stream": stream, "offset": offset, "wait_ms": wait_ms });
        let limit = Dur::from_millis(self.manifest().timeouts.default.as_millis() + wait_ms);
        let answer = self.keeper.call("exec_logs", self.keyed(params), limit).await?;
        let data = answer.get("data").and_then(wire::decode);
        let data = data.ok_or_else(|| lie(self.keeper.id(), "exec_logs", "`data` is not base64"))?;
        let number = |key: &str| answer.get(key).and_then(Value::as_u64).unwrap_or_default();
        let finished = answer.get("finished").and_then(Value::as_bool).unwrap_or_default();
        let next = answer.get("next_offset").and_then(Value::as_u64);
        let next_offset =
            next.ok_or_else(|| lie(self.keeper.id(), "exec_logs", "`next_offset` is missing"))?;
        Ok(LogChunk { data, next_offset, skipped: number("skipped"), finished })
    }

    async fn exec_stdin(&self, handle: &Handle, id: ExecId, data: Option<Vec<u8>>) -> Result<()> {
        let capability = &self.manifest().capability;
        self.need(capability.exec_background && capability.exec_stdin, "stdin of background execs")?;
        let Some(data) = data else {
            return self.tell("exec_stdin", json!({ "handle": handle, "exec_id": id, "data": null })).await;
        };
        for piece in data.chunks(CHUNK) {
            let piece = wire::encode(piece);
            self.tell("exec_stdin", json!({ "handle": handle, "exec_id": id, "data": piece })).await?;
        }
        Ok(())
    }

    async fn exec_signal(&self, handle: &Handle, id: ExecId, signal: i32) -> Result<()> {
        self.need(self.manifest().capability.exec_background, "background execs")?;
        self.tell("exec_signal", json!({ "handle": handle, "exec_id": id, "signal": signal })).await
    }

    async fn file_stat(&self, handle: &Handle, path: &str) -> Result<FileInfo> {
        self.need(self.manifest().capability.files, "files")?;
        self.ask("file_stat", json!({ "handle": handle, "path": path })).await
    }

    async fn file_list(&self, handle: &Handle, path: &str) -> Result<Vec<FileInfo>> {
        self.need(self.manifest().capability.files, "files")?;
        self.ask("file_list", json!({ "handle": handle, "path": path })).await
    }

    async fn file_read(&self, handle: &Handle, path: &str) -> Result<BoxRead> {
        self.need(self.manifest().capability.files, "files")?;
        self.stream("file_read", json!({ "handle": handle, "path": path })).await
    }

    async fn file_write(&self, handle: &Handle, path: &str, mode: u32, data: BoxRead) -> Result<()> {
        self.need(self.manifest().capability.files, "files")?;
        self.feed("file_write", json!({ "handle": handle, "path": path, "mode": mode }), data).await
    }

    async fn file_delete(&self, handle: &Handle, path: &str, recursive: bool) -> Result<()> {
        self.need(self.manifest().capability.files, "files")?;
        self.tell("file_delete", json!({ "handle": handle, "path": path, "recursive": recursive })).await
    }

    async fn file_mkdir(&self, handle: &Handle, path: &str) -> Result<()> {
        self.need(self.manifest().capability.files, "files")?;
        self.tell("file_mkdir", json!({ "handle": handle, "path": path })).await
    }

    async fn file_rename(&self, handle: &Handle, from: &str, to: &str) -> Result<()> {
        self.need(self.manifest().capability.files, "files")?;
        self.tell("file_rename", json!({ "handle": handle, "from": from, "to": to })).await
    }

    async fn archive_get(&self, handle: &Handle, path: &str) -> Result<BoxRead> {
        self.need(self.manifest().capability.archive, "archives")?;
        self.stream("archive_get", json!({ "handle": handle, "path": path })).await
    }

    async fn archive_put(&self, handle: &Handle, path: &str, tar: BoxRead) -> Result<()> {
        self.need(self.manifest().capability.archive, "archives")?;
        self.feed("archive_put", json!({ "handle": handle, "path": path }), tar).await
    }

    async fn port_connect(&self, handle: &Handle, port: u16) -> Result<BoxDuplex> {
        self.need(self.manifest().capability.port, "ports")?;
        let connection = self.keeper.connection().await?;
        let ask = async {
            let params = self.keyed(json!({ "handle": handle, "port": port }));
            let (mut request, mut readers) =
                Request::open(&connection, "port_connect", params, &[Stream::Data]).await?;
            request.started().await?;
            let reader =
                readers.pop().ok_or_else(|| lie(self.keeper.id(), "port_connect", "it has no stream"))?;
            let writer = streams::writer(request.feeder());
            Ok(Box::pin(PortStream { reader, writer, _request: request }) as BoxDuplex)
        };
        self.keeper.within(&connection, "port_connect", self.manifest().timeouts.default, ask).await
    }

    async fn backend_logs(&self, handle: &Handle, follow: bool) -> Result<BoxRead> {
        self.need(self.manifest().capability.backend_logs, "logs of the backend")?;
        self.stream("backend_logs", json!({ "handle": handle, "follow": follow })).await
    }

    async fn pause(&self, handle: &Handle) -> Result<()> {
        self.need(self.manifest().capability.pause, "pause")?;
        self.tell("pause", json!({ "handle": handle })).await
    }

    async fn resume(&self, handle: &Handle) -> Result<()> {
        self.need(self.manifest().capability.pause, "pause")?;
        self.tell("resume", json!({ "handle": handle })).await
    }

    async fn snapshot(&self, handle: &Handle, id: SnapshotId) -> Result<Taken> {
        self.need(self.manifest().capability.snapshot, "snapshots")?;
        let params = json!({ "handle": handle, "snapshot_id": id });
        let taken: Taken = self.ask_within("snapshot", params, self.manifest().timeouts.snapshot).await?;
        if taken.snapshot_id == id {
            return Ok(taken);
        }
        Err(lie(self.keeper.id(), "snapshot", "it has another id"))
    }

    async fn snapshot_delete(
        &self,
        host: &str,
        id: SnapshotId,
        taken: Option<&Taken>,
    ) -> Result<CleanupReport> {
        self.need(self.manifest().capability.snapshot, "snapshots")?;
        let params = json!({ "host": host, "snapshot_id": id, "taken": taken });
        self.ask_within("snapshot_delete", params, self.manifest().timeouts.snapshot).await
    }

    async fn host_facts(&self, host: &str) -> Result<Value> {
        self.ask("host_facts", json!({ "host": host })).await
    }
}
