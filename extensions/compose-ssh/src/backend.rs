//! The contract, method by method.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::capability::Capability;
use sandboxer_core::exec::{BoxRead, ExecSession, ExecSpec};
use sandboxer_core::extension::{
    BackendStatus, BoxDuplex, CheckReport, CleanupReport, Description, Extension, Found, Handle, Life,
    ProvisionRequest, Reachability, Usage,
};
use sandboxer_core::files::FileInfo;
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::snapshot::Taken;
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{Dur, Error, ErrorKind, Result, SnapshotId};
use sandboxer_remote::Guard;
use serde_json::json;

use crate::config::Settings;
use crate::files::Files;
use crate::site::{Site, check_tag};
use crate::{exec, host, inspect, logs, port, provision, snapshot, teardown};

pub struct ComposeSsh {
    settings: Settings,
    /// What is known about hosts that answered once.
    sites: Mutex<BTreeMap<String, Site>>,
}

impl ComposeSsh {
    pub fn new(settings: Settings) -> Self {
        Self { settings, sites: Mutex::new(BTreeMap::new()) }
    }

    async fn site(&self, name: &str) -> Result<Site> {
        let known = self.sites.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get(name).cloned();
        if let Some(site) = known {
            return Ok(site);
        }
        let site = Site::open(&self.settings, &self.settings.hosts.host(name).await?).await?;
        let mut sites = self.sites.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        sites.insert(name.to_owned(), site.clone());
        Ok(site)
    }

    fn guard(site: &Site, tag: &str) -> Guard {
        Guard::new(&site.remote, site.folder(tag))
    }
}

#[async_trait]
impl Extension for ComposeSsh {
    fn describe(&self) -> Description {
        Description {
            id: crate::ID.into(),
            summary: "The compose stack of a repository, on this machine or on a host reached by SSH".into(),
            capability: Capability {
                isolation: IsolationLevel::Container,
                exec: true,
                exec_split_streams: true,
                exec_stdin: true,
                exec_tty: true,
                exec_user: true,
                files: true,
                archive: true,
                port: true,
                workspace_access: true,
                persistence: true,
                extend_ttl: true,
                idle_reap: true,
                pause: true,
                snapshot: true,
                restore: true,
                fork: true,
                only_by_name: true,
                self_hosted: true,
                host_local: true,
                host_ssh: true,
                backend_logs: true,
                image_host: true,
                ..Capability::default()
            },
            pricing: "self-hosted".into(),
            configuration: BTreeMap::from([
                ("repo".into(), "input: a folder on this machine with a compose file".into()),
                ("repo_ref".into(), "input: a git repository, `PATH#REF` or an address".into()),
                ("compose_bundle_ref".into(), "input: a plain tar with a compose file".into()),
                (
                    "include".into(),
                    "input: paths that are taken along although they look like credentials".into(),
                ),
                ("service".into(), "input: the service that commands and files go to".into()),
                ("docker_host".into(), "label of a host: where its engine listens".into()),
            ]),
        }
    }

    async fn check(&self, host: &str) -> Result<CheckReport> {
        let site = self.site(host).await?;
        host::check(&self.settings, &site).await
    }

    fn provision_timeout(&self, _spec: &SandboxSpec) -> Option<Dur> {
        Some(provision::PROVISION_LIMIT)
    }

    async fn provision(&self, request: ProvisionRequest) -> Result<Handle> {
        provision::check_request(&request).map_err(Error::without_effect)?;
        let site = self.site(&request.host).await.map_err(Error::without_effect)?;
        provision::provision(&self.settings, &site, &request).await
    }

    async fn wait_ready(&self, handle: &Handle) -> Result<Reachability> {
        port::reachability(&self.site(&handle.host).await?, handle).await
    }

    async fn teardown(&self, host: &str, tag: &str, _handle: Option<&Handle>) -> Result<CleanupReport> {
        check_tag(tag)?;
        let site = self.site(host).await?;
        teardown::remove(&site, tag).await
    }

    async fn list(&self, host: &str, tag_prefix: &str) -> Result<Vec<Found>> {
        teardown::list(&self.site(host).await?, tag_prefix).await
    }

    async fn life(&self, handle: &Handle) -> Result<Life> {
        let site = self.site(&handle.host).await?;
        let filter = format!("label={}={}", crate::rewrite::TAG_LABEL, handle.tag);
        let output = site.docker(&["ps", "-q", "--filter", &filter]).await?;
        if output.success() {
            return Ok(Life::of(!output.text().is_empty()));
        }
        Err(crate::site::engine_down(site.remote.name(), &output.last_words()))
    }

    async fn status(&self, handle: &Handle) -> Result<BackendStatus> {
        let site = self.site(&handle.host).await?;
        let all = inspect::containers(&site, &handle.tag).await?;
        let detail: Vec<_> = all
            .iter()
            .map(|one| {
                json!({
                    "service": one.service(), "container": one.plain_name(), "status": one.state.status,
                    "health": one.health(), "exit_code": one.state.exit_code, "restarts": one.restart_count,
                    "address": one.address(),
                })
            })
            .collect();
        let alive = all.iter().any(|one| matches!(one.state.status.as_str(), "running" | "paused"));
        let usage = if alive { inspect::usage(&site, &handle.tag).await? } else { None };
        Ok(BackendStatus { alive, ended_at: None, usage, detail: json!({ "containers": detail }) })
    }

    async fn extend(&self, handle: &Handle, expires_at: Timestamp) -> Result<()> {
        let site = self.site(&handle.host).await?;
        Self::guard(&site, &handle.tag).extend(expires_at).await.map_err(|error| gone(error, handle))
    }

    async fn exec(&self, handle: &Handle, spec: ExecSpec) -> Result<ExecSession> {
        exec::start(&self.site(&handle.host).await?, handle, spec).await
    }

    async fn file_stat(&self, handle: &Handle, path: &str) -> Result<FileInfo> {
        Files::of(&self.site(&handle.host).await?, handle)?.stat(path).await
    }

    async fn file_list(&self, handle: &Handle, path: &str) -> Result<Vec<FileInfo>> {
        Files::of(&self.site(&handle.host).await?, handle)?.list(path).await
    }

    async fn file_read(&self, handle: &Handle, path: &str) -> Result<BoxRead> {
        Files::of(&self.site(&handle.host).await?, handle)?.read(path).await
    }

    async fn file_write(&self, handle: &Handle, path: &str, mode: u32, data: BoxRead) -> Result<()> {
        Files::of(&self.site(&handle.host).await?, handle)?.write(path, mode, data).await
    }

    async fn file_delete(&self, handle: &Handle, path: &str, recursive: bool) -> Result<()> {
        Files::of(&self.site(&handle.host).await?, handle)?.delete(path, recursive).await
    }

    async fn file_mkdir(&self, handle: &Handle, path: &str) -> Result<()> {
        Files::of(&self.site(&handle.host).await?, handle)?.mkdir(path).await
    }

    async fn file_rename(&self, handle: &Handle, from: &str, to: &str) -> Result<()> {
        Files::of(&self.site(&handle.host).await?, handle)?.rename(from, to).await
    }

    async fn archive_get(&self, handle: &Handle, path: &str) -> Result<BoxRead> {
        Files::of(&self.site(&handle.host).await?, handle)?.tar_out(path).await
    }

    async fn archive_put(&self, handle: &Handle, path: &str, tar: BoxRead) -> Result<()> {
        Files::of(&self.site(&handle.host).await?, handle)?.tar_in(path, tar).await
    }

    async fn port_connect(&self, handle: &Handle, number: u16) -> Result<BoxDuplex> {
        port::connect(&self.site(&handle.host).await?, handle, number).await
    }

    async fn backend_logs(&self, handle: &Handle, follow: bool) -> Result<BoxRead> {
        logs::open(&self.site(&handle.host).await?, handle, follow).await
    }

    async fn pause(&self, handle: &Handle) -> Result<()> {
        let site = self.site(&handle.host).await?;
        inspect::set_paused(&site, &handle.tag, true).await
    }

    async fn resume(&self, handle: &Handle) -> Result<()> {
        let site = self.site(&handle.host).await?;
        inspect::set_paused(&site, &handle.tag, false).await
    }

    async fn snapshot(&self, handle: &Handle, id: SnapshotId) -> Result<Taken> {
        snapshot::take(&self.site(&handle.host).await?, handle, id).await
    }

    async fn snapshot_delete(
        &self,
        host: &str,
        id: SnapshotId,
        _taken: Option<&Taken>,
    ) -> Result<CleanupReport> {
        snapshot::delete(&self.site(host).await?, id).await
    }

    async fn host_facts(&self, host: &str) -> Result<serde_json::Value> {
        host::facts(&self.site(host).await?).await
    }
}

/// Asked about a sandbox, "not found" is the sandbox's and not a file's.
fn gone(error: Error, handle: &Handle) -> Error {
    if error.kind() == ErrorKind::NotFound {
        return Error::new(ErrorKind::SandboxNotFound, format!("{} is gone", handle.tag));
    }
    error
}

/// What `docker stats` adds up to.
pub(crate) fn usage_of(memory_bytes: u64, pids: u64) -> Usage {
    Usage { memory_bytes: Some(memory_bytes), pids: Some(pids), ..Usage::default() }
}
