//! The contract, method by method.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::capability::Capability;
use sandboxer_core::exec::{BoxRead, ExecInfo, ExecSession, ExecSpec, LogChunk, LogStream};
use sandboxer_core::extension::{
    BackendStatus, BoxDuplex, CheckReport, CleanupReport, Description, Extension, Found, Handle, Life,
    ProvisionRequest, Reachability, Usage,
};
use sandboxer_core::files::FileInfo;
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::{Dur, Error, ErrorKind, ExecId, Result};
use sandboxer_runtime::{Control, Probe, ProbeOverrides, Runtime, RuntimeDirs, Stream};

use crate::config::NativeConfig;
use crate::errors::map;
use crate::warm::WarmPool;
use crate::{exec, files, host, provision};

/// How many connections of sandboxes launched a moment ago are kept for their first command; each holds two descriptors.
const FRESH_LIMIT: usize = 64;

pub struct Native {
    runtime: Runtime,
    root: PathBuf,
    overrides: ProbeOverrides,
    /// The launch leaves an open connection, which the first command uses instead of a new one.
    fresh: Mutex<BTreeMap<String, Control>>,
    warm: WarmPool,
}

impl Native {
    pub fn new(config: NativeConfig) -> Self {
        let runtime = Runtime::new(RuntimeDirs::new(config.root.clone()), config.launcher);
        let runtime = runtime.with_overrides(config.overrides);
        Self {
            warm: WarmPool::new(runtime.clone(), config.warm),
            runtime,
            root: config.root,
            overrides: config.overrides,
            fresh: Mutex::new(BTreeMap::new()),
        }
    }

    async fn control(&self, handle: &Handle) -> Result<Control> {
        let fresh = self.fresh.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&handle.tag);
        match fresh {
            Some(control) => Ok(control),
            None => self.runtime.connect(&handle.tag).await.map_err(map),
        }
    }

    /// When it ended by itself, by this machine's clock.
    fn ended_at(&self, handle: &Handle) -> Option<Timestamp> {
        self.runtime.ended_at(&handle.tag).and_then(|at| Timestamp::try_from(at).ok())
    }

    fn is_fresh(&self, tag: &str) -> bool {
        self.fresh.lock().unwrap_or_else(std::sync::PoisonError::into_inner).contains_key(tag)
    }

    fn keep_fresh(&self, tag: &str, control: Control) {
        let mut fresh = self.fresh.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if fresh.len() < FRESH_LIMIT {
            fresh.insert(tag.to_owned(), control);
        }
    }

    /// The probe blocks for some milliseconds, so it does not run on the executor.
    async fn probe(&self) -> Result<Probe> {
        let (runtime, overrides) = (self.runtime.clone(), self.overrides);
        let probe = tokio::task::spawn_blocking(move || runtime.probe(overrides)).await;
        probe
            .map_err(|source| Error::new(ErrorKind::Internal, "the probe broke off").with_source(source))?
            .map_err(map)
    }
}

#[async_trait]
impl Extension for Native {
    fn describe(&self) -> Description {
        Description {
            id: crate::ID.into(),
            summary: "The native Linux runtime: namespaces, overlay root, seccomp, Landlock, cgroups; no daemon, no image".into(),
            capability: Capability {
                isolation: IsolationLevel::Container,
                exec: true,
                exec_split_streams: true,
                exec_stdin: true,
                exec_tty: true,
                exec_background: true,
                exec_user: true,
                files: true,
                archive: true,
                port: true,
                mounts: true,
                workspace_access: true,
                extend_ttl: true,
                idle_reap: true,
                self_hosted: true,
                host_local: true,
                image_host: true,
                ..Capability::default()
            },
            pricing: "self-hosted".into(),
            configuration: BTreeMap::new(),
        }
    }

    async fn check(&self, _host: &str) -> Result<CheckReport> {
        Ok(host::check(&self.probe().await?))
    }

    async fn provision(&self, request: ProvisionRequest) -> Result<Handle> {
        let spec = provision::to_spec(&request)?;
        let late_seed = request.seed.filter(|_| spec.seed.is_none());
        let launched = match self.warm.take(&spec).await {
            Some(adopted) => adopted,
            None => self.runtime.launch(spec).await.map_err(map)?,
        };
        if let Some(seed) = late_seed {
            files::unpack_seed(&launched.control, &seed).await?;
        }
        let handle = provision::to_handle(request.tag, &launched.enforced)?;
        if !launched.existing {
            self.keep_fresh(&handle.tag, launched.control);
        }
        Ok(handle)
    }

    async fn wait_ready(&self, handle: &Handle) -> Result<Reachability> {
        // A launch returns when the first process inside has spoken over the control connection, which is the probe.
        // Anything older is asked again.
        if !self.is_fresh(&handle.tag) {
            self.control(handle).await?.ping().await.map_err(map)?;
        }
        Ok(Reachability {
            method: "exec".into(),
            endpoint: format!("/v1/sandboxes/{}/execs", handle.tag),
            probe: "the first process inside answered over the control socket".into(),
            ports: Vec::new(),
        })
    }

    async fn teardown(&self, _host: &str, tag: &str, _handle: Option<&Handle>) -> Result<CleanupReport> {
        self.fresh.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(tag);
        self.runtime.stop(tag).await.map(provision::to_report).map_err(map)
    }

    async fn list(&self, _host: &str, tag_prefix: &str) -> Result<Vec<Found>> {
        self.warm.sweep_the_dead();
        let found = self.runtime.list().map_err(map)?;
        Ok(found
            .into_iter()
            .filter(|found| found.id.starts_with(tag_prefix))
            .map(|found| Found {
                parts: vec![format!("native sandbox {}", found.id)],
                tag: found.id,
                alive: found.alive,
            })
            .collect())
    }

    async fn life(&self, handle: &Handle) -> Result<Life> {
        Ok(match self.runtime.is_alive(&handle.tag) {
            true => Life::Alive,
            false => Life::Ended { at: self.ended_at(handle) },
        })
    }

    async fn status(&self, handle: &Handle) -> Result<BackendStatus> {
        let status = match self.control(handle).await {
            Ok(control) => control.status(true).await.map_err(map)?,
            Err(error) if error.kind() == ErrorKind::SandboxNotFound => {
                return Ok(BackendStatus::ended(self.ended_at(handle), serde_json::Value::Null));
            }
            Err(error) => return Err(error),
        };
        let usage = Usage {
            memory_bytes: status.usage.memory_bytes,
            cpu_usec: status.usage.cpu_usec,
            pids: status.usage.pids,
            disk_bytes: status.usage.disk_bytes,
        };
        let detail = serde_json::to_value(&status).map_err(|source| {
            Error::new(ErrorKind::Internal, "a status cannot be written").with_source(source)
        })?;
        Ok(BackendStatus::alive(Some(usage), detail))
    }

    async fn extend(&self, handle: &Handle, expires_at: Timestamp) -> Result<()> {
        let deadline = u64::try_from(expires_at.as_millisecond()).unwrap_or_default();
        self.control(handle).await?.extend(deadline).await.map_err(map)
    }

    async fn exec(&self, handle: &Handle, spec: ExecSpec) -> Result<ExecSession> {
        exec::start(&self.control(handle).await?, spec).await
    }

    async fn exec_background(&self, handle: &Handle, spec: ExecSpec) -> Result<ExecInfo> {
        let control = self.control(handle).await?;
        exec::to_info(control.exec_background(exec::to_runtime(&spec)).await.map_err(map)?)
    }

    async fn exec_list(&self, handle: &Handle) -> Result<Vec<ExecInfo>> {
        let execs = self.control(handle).await?.execs().await.map_err(map)?;
        execs.into_iter().map(exec::to_info).collect()
    }

    async fn exec_logs(
        &self,
        handle: &Handle,
        id: ExecId,
        stream: LogStream,
        offset: u64,
        wait: Dur,
    ) -> Result<LogChunk> {
        let control = self.control(handle).await?;
        let stream = match stream {
            LogStream::Stdout => Stream::Stdout,
            LogStream::Stderr => Stream::Stderr,
        };
        let id = id.to_string();
        let follow = wait > Dur::ZERO;
        let limit = if follow { wait.as_std() } else { Duration::from_secs(30) };
        match tokio::time::timeout(limit, control.exec_logs(&id, stream, offset, follow)).await {
            Ok(chunk) => chunk.map(|chunk| exec::to_chunk(offset, chunk)).map_err(not_an_exec),
            // Nothing new came in time.
            Err(_) => Ok(LogChunk { next_offset: offset, ..LogChunk::default() }),
        }
    }

    async fn exec_stdin(&self, handle: &Handle, id: ExecId, data: Option<Vec<u8>>) -> Result<()> {
        let control = self.control(handle).await?;
        let eof = data.is_none();
        control.exec_stdin(&id.to_string(), &data.unwrap_or_default(), eof).await.map_err(not_an_exec)
    }

    async fn exec_signal(&self, handle: &Handle, id: ExecId, signal: i32) -> Result<()> {
        let control = self.control(handle).await?;
        control.exec_signal(&id.to_string(), signal, false).await.map_err(not_an_exec)
    }

    async fn file_stat(&self, handle: &Handle, path: &str) -> Result<FileInfo> {
        self.control(handle).await?.files().stat(path).await.map(files::to_info).map_err(map)
    }

    async fn file_list(&self, handle: &Handle, path: &str) -> Result<Vec<FileInfo>> {
        let entries = self.control(handle).await?.files().list(path, 1).await.map_err(map)?;
        Ok(entries.into_iter().map(files::to_info).collect())
    }

    async fn file_read(&self, handle: &Handle, path: &str) -> Result<BoxRead> {
        files::to_stream(self.control(handle).await?.files().read(path, 0, None).await.map_err(map)?).await
    }

    async fn file_write(&self, handle: &Handle, path: &str, mode: u32, data: BoxRead) -> Result<()> {
        let writer = self.control(handle).await?.files().write(path, Some(mode), true).await.map_err(map)?;
        files::copy_in(data, writer).await
    }

    async fn file_delete(&self, handle: &Handle, path: &str, recursive: bool) -> Result<()> {
        self.control(handle).await?.files().delete(path, recursive).await.map_err(map)
    }

    async fn file_mkdir(&self, handle: &Handle, path: &str) -> Result<()> {
        self.control(handle).await?.files().mkdir(path, true).await.map_err(map)
    }

    async fn file_rename(&self, handle: &Handle, from: &str, to: &str) -> Result<()> {
        self.control(handle).await?.files().rename(from, to).await.map_err(map)
    }

    async fn archive_get(&self, handle: &Handle, path: &str) -> Result<BoxRead> {
        files::to_stream(self.control(handle).await?.files().tar_out(path).await.map_err(map)?).await
    }

    async fn archive_put(&self, handle: &Handle, path: &str, tar: BoxRead) -> Result<()> {
        let writer = self.control(handle).await?.files().tar_in(path).await.map_err(map)?;
        files::copy_in(tar, writer).await
    }

    async fn port_connect(&self, handle: &Handle, port: u16) -> Result<BoxDuplex> {
        let stream = self.control(handle).await?.connect(port).await.map_err(map)?;
        Ok(Box::pin(stream))
    }

    async fn host_facts(&self, _host: &str) -> Result<serde_json::Value> {
        Ok(host::facts(&self.probe().await?, &self.root))
    }
}

/// Asked about an exec, "not found" is the exec's and not a file's.
fn not_an_exec(error: sandboxer_runtime::RuntimeError) -> Error {
    let mapped = map(error);
    if mapped.kind() != ErrorKind::NotFound {
        return mapped;
    }
    Error::new(ErrorKind::ExecNotFound, mapped.to_string())
        .with_hint("only the most recent execs of a living sandbox are remembered")
}
