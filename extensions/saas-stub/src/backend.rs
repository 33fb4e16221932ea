//! The contract, method by method. What runs inside is the backing's; the life of a sandbox is the provider's.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::capability::Capability;
use sandboxer_core::env_vars::EnvVars;
use sandboxer_core::exec::{BoxRead, ExecInfo, ExecSession, ExecSpec, LogChunk, LogStream};
use sandboxer_core::extension::{
    BackendStatus, BoxDuplex, CheckItem, CheckReport, CleanupReport, Credential, Description, Extension,
    Found, Handle, Life, Location, ProvisionRequest, Reachability,
};
use sandboxer_core::files::FileInfo;
use sandboxer_core::host::LOCAL;
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::snapshot::Taken;
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{Dur, Error, ErrorKind, ExecId, Result, SnapshotId};
use serde_json::{Value, json};

use crate::behaviour::Behaviour;
use crate::config::{Backing, Settings};
use crate::provider::Provider;
use crate::provision::inner;
use crate::record::Record;
use crate::{faults, record, usage};

/// The pretended provider, as whoever has this key sees it.
pub struct SaasStub {
    pub(crate) settings: Settings,
    pub(crate) provider: Provider,
    /// None is the platform's own.
    pub(crate) key: Option<Credential>,
}

impl SaasStub {
    pub fn new(settings: Settings) -> Self {
        Self { provider: Provider::new(settings.folder.clone()), settings, key: None }
    }

    /// The usage export as the provider would give it now: what ended, and what runs with its usage so far.
    pub fn usage_export(&self) -> Result<String> {
        let path = usage::path(self.provider.folder());
        let mut out = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => usage::HEADER.to_owned(),
            Err(source) => {
                return Err(Error::new(
                    ErrorKind::BackendFailed,
                    format!("{} cannot be read", path.display()),
                )
                .with_source(source));
            }
        };
        let now = Timestamp::now();
        for record in self.provider.all("")?.iter().filter(|record| record.ended_at.is_none()) {
            out.push_str(&usage::line(record, now)?);
        }
        Ok(out)
    }

    /// How the provider behaves towards this sandbox.
    pub(crate) fn behaviour_of(&self, record: Option<&Record>) -> Result<Behaviour> {
        self.settings.behaviour(record.and_then(|record| record.stub.as_deref()))
    }

    /// The account that the key opens.
    pub(crate) fn account(&self) -> String {
        record::account(self.key.as_ref())
    }

    /// What the provider knows of a sandbox in this account. What is in another one is not there.
    fn mine(&self, tag: &str) -> Result<Option<Record>> {
        Ok(self.provider.get(tag)?.filter(|record| record.key == self.account()))
    }

    /// It is somebody else's.
    pub(crate) fn is_elsewhere(&self, tag: &str) -> Result<bool> {
        Ok(self.provider.get(tag)?.is_some_and(|record| record.key != self.account()))
    }

    /// Who runs the sandbox, and the handle that it gave.
    fn behind(&self, handle: &Handle, what: &str) -> Result<(&Arc<dyn Extension>, Handle)> {
        if self.is_elsewhere(&handle.tag)? {
            return Err(unknown());
        }
        match &self.settings.backing {
            Backing::Extension(backing) => Ok((backing, inner(handle))),
            Backing::None => Err(self.unsupported(what)),
        }
    }

    /// Refused in our own name and not in that of whoever is behind.
    fn require(&self, declared: impl FnOnce(&Capability) -> bool, what: &str) -> Result<()> {
        if declared(&self.capability()) { Ok(()) } else { Err(self.unsupported(what)) }
    }

    fn capability(&self) -> Capability {
        let backing = match &self.settings.backing {
            Backing::Extension(backing) => backing.describe().capability,
            Backing::None => Capability {
                // No command runs in it, so that none can leave it.
                isolation: IsolationLevel::Container,
                extend_ttl: true,
                image_host: true,
                ..Capability::default()
            },
        };
        Capability {
            self_hosted: false,
            host_local: false,
            host_ssh: false,
            only_by_name: true,
            // A provider elsewhere has no folders of this machine.
            mounts: false,
            ..backing
        }
    }

    /// Whether it lives, and if not since when: by the provider's books, and where they say nothing by what is behind.
    async fn life_in(&self, known: Option<&Record>, handle: &Handle) -> Result<Life> {
        let now = Timestamp::now();
        // What is lost is not known, not even as something that was.
        let Some(record) = known.filter(|record| !record.is_lost(now)) else { return Ok(Life::ENDED) };
        if !record.is_in_time(now) {
            return Ok(Life::Ended { at: record.ended_at.or(Some(record.end().0)) });
        }
        match &self.settings.backing {
            Backing::Extension(backing) => backing.life(&inner(handle)).await,
            Backing::None => Ok(Life::Alive),
        }
    }

    /// What the provider knows of it, also after its end.
    fn known(&self, tag: &str) -> Result<Option<Record>> {
        let ended = self.provider.ended(tag)?.filter(|record| record.key == self.account());
        Ok(self.mine(tag)?.or(ended))
    }

    /// A call that changes a sandbox takes its time.
    async fn delay(&self, tag: &str) -> Result<()> {
        let record = self.provider.get(tag)?;
        faults::wait(self.behaviour_of(record.as_ref())?.delay(tag)).await;
        Ok(())
    }

    /// The provider's own part of `check`.
    fn items(&self) -> Vec<CheckItem> {
        let item = |name: &str, ok, detail, hint| CheckItem {
            name: name.to_owned(),
            ok,
            required: true,
            detail,
            hint,
        };
        let behaviour = match self.settings.behaviour(None) {
            Ok(behaviour) if behaviour == Behaviour::default() => {
                item("behaviour", true, "no delay and no fault".to_owned(), None)
            }
            Ok(_) => {
                let where_from = format!("as behaviour.toml and {} say", EnvVars::SANDBOXER_STUB);
                item("behaviour", true, where_from, None)
            }
            Err(error) => {
                let hint = error.hint().unwrap_or("mend or remove it").to_owned();
                item("behaviour", false, error.chain().join(": "), Some(hint))
            }
        };
        let folder = self.provider.folder().display().to_string();
        let provider = match self.provider.all("") {
            Ok(known) => item("provider", true, format!("{} sandboxes in {folder}", known.len()), None),
            Err(error) => {
                let hint = error.hint().unwrap_or("it must be a folder of your own").to_owned();
                item("provider", false, error.chain().join(": "), Some(hint))
            }
        };
        vec![behaviour, provider]
    }
}

fn unknown() -> Error {
    Error::new(ErrorKind::SandboxNotFound, "the provider has no such sandbox")
}

#[async_trait]
impl Extension for SaasStub {
    fn describe(&self) -> Description {
        Description {
            id: crate::ID.into(),
            summary: "A pretended hosted provider: metered, as slow and as faulty as it is told, for routes, credits and tests".into(),
            capability: self.capability(),
            pricing: "metered".into(),
            configuration: BTreeMap::from([
                (EnvVars::SANDBOXER_STUB.into(), "How it behaves: `latency=200ms,create=429,create_times=2`".into()),
                ("saas-stub/behaviour.toml".into(), "The same in the state folder; the variable and the input `stub` of a request come over it".into()),
            ]),
        }
    }

    fn location(&self) -> Location {
        // Words that cannot be read are told by whatever is asked next.
        let behaviour = self.settings.behaviour(None).unwrap_or_default();
        Location {
            regions: behaviour.region.into_iter().collect(),
            residency: behaviour.residency.into_iter().collect(),
        }
    }

    async fn check(&self, _host: &str) -> Result<CheckReport> {
        let mut items = self.items();
        if let Backing::Extension(backing) = &self.settings.backing {
            items.extend(backing.check(LOCAL).await?.items);
        }
        Ok(CheckReport { ok: items.iter().all(|item| item.ok || !item.required), items })
    }

    fn provision_timeout(&self, spec: &SandboxSpec) -> Option<Dur> {
        match &self.settings.backing {
            Backing::Extension(backing) => backing.provision_timeout(spec),
            Backing::None => None,
        }
    }

    fn with_key(&self, key: &Credential) -> Option<Arc<dyn Extension>> {
        let (settings, provider) = (self.settings.clone(), self.provider.clone());
        Some(Arc::new(Self { settings, provider, key: Some(key.clone()) }))
    }

    async fn provision(&self, request: ProvisionRequest) -> Result<Handle> {
        self.create(request).await
    }

    async fn wait_ready(&self, handle: &Handle) -> Result<Reachability> {
        if self.is_elsewhere(&handle.tag)? {
            return Err(unknown());
        }
        let record = self.mine(&handle.tag)?;
        let behaviour = self.behaviour_of(record.as_ref())?;
        faults::wait(behaviour.ready_latency).await;
        if let Backing::Extension(backing) = &self.settings.backing {
            return backing.wait_ready(&inner(handle)).await;
        }
        let record = record.filter(|record| record.is_in_time(Timestamp::now())).ok_or_else(unknown)?;
        Ok(Reachability {
            method: "none".into(),
            endpoint: record.id,
            probe: "the provider has written it down; nothing runs behind it".into(),
            ports: Vec::new(),
        })
    }

    async fn teardown(&self, _host: &str, tag: &str, _handle: Option<&Handle>) -> Result<CleanupReport> {
        self.remove(tag).await
    }

    async fn list(&self, _host: &str, tag_prefix: &str) -> Result<Vec<Found>> {
        self.all_of_ours(tag_prefix).await
    }

    async fn life(&self, handle: &Handle) -> Result<Life> {
        let known = self.known(&handle.tag)?;
        let behaviour = self.behaviour_of(known.as_ref())?;
        faults::call(behaviour.status, "status", &behaviour).await?;
        self.life_in(known.as_ref(), handle).await
    }

    async fn status(&self, handle: &Handle) -> Result<BackendStatus> {
        let known = self.known(&handle.tag)?;
        let behaviour = self.behaviour_of(known.as_ref())?;
        faults::call(behaviour.status, "status", &behaviour).await?;
        let now = Timestamp::now();
        let life = self.life_in(known.as_ref(), handle).await?;
        let Some(known) = known.filter(|known| !known.is_lost(now)) else {
            return Ok(BackendStatus::ended(None, Value::Null));
        };
        let mut detail = json!({
            "provider": known,
            "state": known.state(now),
            "key": known.key,
            "billed": known.billed_until(now),
        });
        if let Life::Ended { at } = life {
            return Ok(BackendStatus::ended(at, detail));
        }
        let Backing::Extension(backing) = &self.settings.backing else {
            return Ok(BackendStatus::alive(None, detail));
        };
        let behind = backing.status(&inner(handle)).await?;
        if let Some(detail) = detail.as_object_mut() {
            detail.insert("backing".into(), behind.detail);
        }
        Ok(BackendStatus { detail, ..behind })
    }

    async fn extend(&self, handle: &Handle, expires_at: Timestamp) -> Result<()> {
        self.delay(&handle.tag).await?;
        let record = self.mine(&handle.tag)?.filter(|record| record.is_in_time(Timestamp::now()));
        let mut record = record.ok_or_else(unknown)?;
        record.expires_at = expires_at;
        if let Backing::Extension(backing) = &self.settings.backing {
            // Not beyond its death, and not beyond the moment at which it is forgotten.
            backing.extend(&inner(handle), record.end().0).await?;
        }
        let held = self.provider.lock().await?;
        self.provider.change(&held, &handle.tag, |record| record.expires_at = expires_at)
    }

    async fn exec(&self, handle: &Handle, spec: ExecSpec) -> Result<ExecSession> {
        let (backing, inner) = self.behind(handle, "exec")?;
        backing.exec(&inner, spec).await
    }

    async fn exec_background(&self, handle: &Handle, spec: ExecSpec) -> Result<ExecInfo> {
        let (backing, inner) = self.behind(handle, "background execs")?;
        backing.exec_background(&inner, spec).await
    }

    async fn exec_list(&self, handle: &Handle) -> Result<Vec<ExecInfo>> {
        let (backing, inner) = self.behind(handle, "background execs")?;
        backing.exec_list(&inner).await
    }

    async fn exec_logs(
        &self,
        handle: &Handle,
        exec: ExecId,
        stream: LogStream,
        offset: u64,
        wait: Dur,
    ) -> Result<LogChunk> {
        let (backing, inner) = self.behind(handle, "background execs")?;
        backing.exec_logs(&inner, exec, stream, offset, wait).await
    }

    async fn exec_stdin(&self, handle: &Handle, exec: ExecId, data: Option<Vec<u8>>) -> Result<()> {
        let (backing, inner) = self.behind(handle, "stdin of background execs")?;
        backing.exec_stdin(&inner, exec, data).await
    }

    async fn exec_signal(&self, handle: &Handle, exec: ExecId, signal: i32) -> Result<()> {
        let (backing, inner) = self.behind(handle, "signals")?;
        backing.exec_signal(&inner, exec, signal).await
    }

    async fn file_stat(&self, handle: &Handle, path: &str) -> Result<FileInfo> {
        let (backing, inner) = self.behind(handle, "files")?;
        backing.file_stat(&inner, path).await
    }

    async fn file_list(&self, handle: &Handle, path: &str) -> Result<Vec<FileInfo>> {
        let (backing, inner) = self.behind(handle, "files")?;
        backing.file_list(&inner, path).await
    }

    async fn file_read(&self, handle: &Handle, path: &str) -> Result<BoxRead> {
        let (backing, inner) = self.behind(handle, "files")?;
        backing.file_read(&inner, path).await
    }

    async fn file_write(&self, handle: &Handle, path: &str, mode: u32, data: BoxRead) -> Result<()> {
        let (backing, inner) = self.behind(handle, "files")?;
        backing.file_write(&inner, path, mode, data).await
    }

    async fn file_delete(&self, handle: &Handle, path: &str, recursive: bool) -> Result<()> {
        let (backing, inner) = self.behind(handle, "files")?;
        backing.file_delete(&inner, path, recursive).await
    }

    async fn file_mkdir(&self, handle: &Handle, path: &str) -> Result<()> {
        let (backing, inner) = self.behind(handle, "files")?;
        backing.file_mkdir(&inner, path).await
    }

    async fn file_rename(&self, handle: &Handle, from: &str, to: &str) -> Result<()> {
        let (backing, inner) = self.behind(handle, "files")?;
        backing.file_rename(&inner, from, to).await
    }

    async fn archive_get(&self, handle: &Handle, path: &str) -> Result<BoxRead> {
        let (backing, inner) = self.behind(handle, "archives")?;
        backing.archive_get(&inner, path).await
    }

    async fn archive_put(&self, handle: &Handle, path: &str, tar: BoxRead) -> Result<()> {
        let (backing, inner) = self.behind(handle, "archives")?;
        backing.archive_put(&inner, path, tar).await
    }

    async fn port_connect(&self, handle: &Handle, port: u16) -> Result<BoxDuplex> {
        let (backing, inner) = self.behind(handle, "ports")?;
        backing.port_connect(&inner, port).await
    }

    async fn backend_logs(&self, handle: &Handle, follow: bool) -> Result<BoxRead> {
        self.require(|can| can.backend_logs, "logs of the backend")?;
        let (backing, inner) = self.behind(handle, "logs of the backend")?;
        backing.backend_logs(&inner, follow).await
    }

    async fn pause(&self, handle: &Handle) -> Result<()> {
        self.require(|can| can.pause, "pause")?;
        let (backing, inner) = self.behind(handle, "pause")?;
        self.delay(&handle.tag).await?;
        backing.pause(&inner).await?;
        let held = self.provider.lock().await?;
        self.provider.change(&held, &handle.tag, |record| record.pause(Timestamp::now()))
    }

    async fn resume(&self, handle: &Handle) -> Result<()> {
        self.require(|can| can.pause, "pause")?;
        let (backing, inner) = self.behind(handle, "pause")?;
        self.delay(&handle.tag).await?;
        backing.resume(&inner).await?;
        let held = self.provider.lock().await?;
        self.provider.change(&held, &handle.tag, |record| record.resume(Timestamp::now()))
    }

    async fn snapshot(&self, handle: &Handle, id: SnapshotId) -> Result<Taken> {
        self.require(|can| can.snapshot, "snapshots")?;
        let (backing, inner) = self.behind(handle, "snapshots")?;
        backing.snapshot(&inner, id).await
    }

    async fn snapshot_delete(
        &self,
        _host: &str,
        id: SnapshotId,
        taken: Option<&Taken>,
    ) -> Result<CleanupReport> {
        self.require(|can| can.snapshot, "snapshots")?;
        match &self.settings.backing {
            Backing::Extension(backing) => backing.snapshot_delete(LOCAL, id, taken).await,
            Backing::None => Err(self.unsupported("snapshots")),
        }
    }
}
