//! The contract, method by method.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::capability::Capability;
use sandboxer_core::exec::{BoxRead, ExecInfo, ExecSession, ExecSpec, LogChunk, LogStream};
use sandboxer_core::extension::{
    BackendStatus, BoxDuplex, CheckReport, CleanupReport, Description, Extension, Found, Handle, Life,
    ProvisionRequest, Reachability,
};
use sandboxer_core::files::FileInfo;
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::profile::Image;
use sandboxer_core::snapshot::Taken;
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{Dur, Error, ErrorKind, ExecId, Result, SnapshotId};

use crate::client::Client;
use crate::config::Settings;
use crate::exec::Place;
use crate::{check, image, inside, pause, port, provision, remains, snapshot, status};

const EXTEND: &str = include_str!("scripts/extend.sh");
/// The user of the process that keeps the deadline.
const ROOT: &str = "0:0";
/// How many sandboxes are remembered as made a moment ago.
const FRESH_LIMIT: usize = 256;

pub struct Docker {
    client: Client,
    /// Tags whose container has just told that it is ready, which need no second probe.
    fresh: Mutex<BTreeSet<String>>,
}

impl Docker {
    pub fn new(settings: Settings) -> Self {
        Self { client: Client::new(settings), fresh: Mutex::default() }
    }

    async fn place(&self, handle: &Handle) -> Result<Place> {
        Place::of(self.client.connect().await?, handle)
    }

    fn keep_fresh(&self, tag: &str) {
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        if fresh.len() < FRESH_LIMIT {
            fresh.insert(tag.to_owned());
        }
    }

    fn was_fresh(&self, tag: &str) -> bool {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner).remove(tag)
    }
}

#[async_trait]
impl Extension for Docker {
    fn describe(&self) -> Description {
        Description {
            id: crate::ID.into(),
            summary: "Hardened containers of the docker engine on this machine: no network, no capabilities, read-only root; gVisor by profile".into(),
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
                workspace_access: true,
                mounts: true,
                extend_ttl: true,
                idle_reap: true,
                pause: true,
                snapshot: true,
                restore: true,
                fork: true,
                self_hosted: true,
                host_local: true,
                image_oci: true,
                image_rootfs_tar: true,
                ..Capability::default()
            },
            pricing: "self-hosted".into(),
            configuration: BTreeMap::from([(
                "DOCKER_HOST".to_owned(),
                "The engine's socket, `unix:///…`; the usual one when absent".to_owned(),
            )]),
        }
    }

    async fn check(&self, _host: &str) -> Result<CheckReport> {
        check::check(&self.client).await
    }

    fn provision_timeout(&self, spec: &SandboxSpec) -> Option<Dur> {
        // An image that is not there is pulled or imported first.
        let images = matches!(spec.image, Image::Oci(_) | Image::RootfsTar(_));
        images.then(|| Dur::from_secs(image::PULL_LIMIT.as_secs() + 60))
    }

    async fn provision(&self, request: ProvisionRequest) -> Result<Handle> {
        let handle = provision::provision(&self.client, request).await?;
        self.keep_fresh(&handle.tag);
        Ok(handle)
    }

    async fn wait_ready(&self, handle: &Handle) -> Result<Reachability> {
        // A provision returns when the container's own process has spoken, which is the probe. Anything older is asked.
        if !self.was_fresh(&handle.tag) {
            let place = self.place(handle).await?;
            inside::run(&place, &place.user, "exit 0", &[]).await?.ok("reach the sandbox")?;
        }
        Ok(Reachability {
            method: "exec".into(),
            endpoint: format!("/v1/sandboxes/{}/execs", handle.tag),
            probe: "a process inside the container answered".into(),
            ports: Vec::new(),
        })
    }

    async fn teardown(&self, _host: &str, tag: &str, _handle: Option<&Handle>) -> Result<CleanupReport> {
        self.was_fresh(tag);
        remains::clear(self.client.connect().await?, tag).await
    }

    async fn list(&self, _host: &str, tag_prefix: &str) -> Result<Vec<Found>> {
        remains::list(self.client.connect().await?, tag_prefix).await
    }

    async fn status(&self, handle: &Handle) -> Result<BackendStatus> {
        status::status(&self.place(handle).await?).await
    }

    async fn life(&self, handle: &Handle) -> Result<Life> {
        status::life(&self.place(handle).await?).await
    }

    async fn extend(&self, handle: &Handle, expires_at: Timestamp) -> Result<()> {
        let place = self.place(handle).await?;
        let deadline = expires_at.as_second().saturating_add(1).to_string();
        match inside::run(&place, ROOT, EXTEND, &[&deadline]).await {
            Ok(done) => done.ok("move the deadline").map(drop),
            // A deadline that is already over ends the script together with everything else.
            Err(error) if error.kind() == ErrorKind::SandboxNotFound && expires_at <= Timestamp::now() => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn exec(&self, handle: &Handle, spec: ExecSpec) -> Result<ExecSession> {
        let place = self.place(handle).await?;
        place.start(place.launch(&spec)).await
    }

    async fn exec_background(&self, handle: &Handle, spec: ExecSpec) -> Result<ExecInfo> {
        self.place(handle).await?.exec_background(&spec).await
    }

    async fn exec_list(&self, handle: &Handle) -> Result<Vec<ExecInfo>> {
        self.place(handle).await?.exec_list().await
    }

    async fn exec_logs(
        &self,
        handle: &Handle,
        exec: ExecId,
        stream: LogStream,
        offset: u64,
        wait: Dur,
    ) -> Result<LogChunk> {
        self.place(handle).await?.exec_logs(exec, stream, offset, wait).await
    }

    async fn exec_stdin(&self, handle: &Handle, exec: ExecId, data: Option<Vec<u8>>) -> Result<()> {
        self.place(handle).await?.exec_stdin(exec, data).await
    }

    async fn exec_signal(&self, handle: &Handle, exec: ExecId, signal: i32) -> Result<()> {
        self.place(handle).await?.exec_signal(exec, signal).await
    }

    async fn file_stat(&self, handle: &Handle, path: &str) -> Result<FileInfo> {
        self.place(handle).await?.file_stat(path).await
    }

    async fn file_list(&self, handle: &Handle, path: &str) -> Result<Vec<FileInfo>> {
        self.place(handle).await?.file_list(path).await
    }

    async fn file_read(&self, handle: &Handle, path: &str) -> Result<BoxRead> {
        self.place(handle).await?.file_read(path).await
    }

    async fn file_write(&self, handle: &Handle, path: &str, mode: u32, data: BoxRead) -> Result<()> {
        self.place(handle).await?.file_write(path, mode, data).await
    }

    async fn file_delete(&self, handle: &Handle, path: &str, recursive: bool) -> Result<()> {
        self.place(handle).await?.file_delete(path, recursive).await
    }

    async fn file_mkdir(&self, handle: &Handle, path: &str) -> Result<()> {
        self.place(handle).await?.file_mkdir(path).await
    }

    async fn file_rename(&self, handle: &Handle, from: &str, to: &str) -> Result<()> {
        self.place(handle).await?.file_rename(from, to).await
    }

    async fn archive_get(&self, handle: &Handle, path: &str) -> Result<BoxRead> {
        self.place(handle).await?.archive_get(path).await
    }

    async fn archive_put(&self, handle: &Handle, path: &str, tar: BoxRead) -> Result<()> {
        self.place(handle).await?.archive_put(path, tar).await
    }

    async fn port_connect(&self, handle: &Handle, port: u16) -> Result<BoxDuplex> {
        port::connect(&self.place(handle).await?, port).await
    }

    async fn pause(&self, handle: &Handle) -> Result<()> {
        pause::stop(&self.place(handle).await?).await.map(drop)
    }

    async fn resume(&self, handle: &Handle) -> Result<()> {
        pause::go_on(&self.place(handle).await?).await
    }

    async fn snapshot(&self, handle: &Handle, id: SnapshotId) -> Result<Taken> {
        snapshot::take(&self.place(handle).await?, id).await
    }

    async fn snapshot_delete(
        &self,
        _host: &str,
        id: SnapshotId,
        _taken: Option<&Taken>,
    ) -> Result<CleanupReport> {
        remains::clear(self.client.connect().await?, &id.to_string()).await
    }

    async fn host_facts(&self, _host: &str) -> Result<serde_json::Value> {
        check::facts(self.client.connect().await?).await
    }

    fn unsupported(&self, what: &str) -> Error {
        Error::unsupported(crate::ID, what)
    }
}
