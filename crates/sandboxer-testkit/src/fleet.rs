//! An extension on several hosts at once, each of which fails as the test says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use sandboxer_core::capability::Capability;
use sandboxer_core::extension::{
    BackendStatus, CheckReport, CleanupReport, Description, Extension, Found, Handle, ProvisionRequest,
    Reachability,
};
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::{Error, ErrorKind, Result, SandboxId};
use serde_json::json;

/// What goes wrong on one host.
#[derive(Clone, Debug, Default)]
pub struct HostScript {
    /// Provision fails so, before or after it had an effect.
    pub provision: Option<ErrorKind>,
    pub after_effect: bool,
    /// Provision has its effect and never answers.
    pub hangs: bool,
    /// Teardown, list, check and facts fail so.
    pub teardown: Option<ErrorKind>,
    pub list: Option<ErrorKind>,
    pub check: Option<ErrorKind>,
}

#[derive(Debug, Default)]
struct World {
    scripts: BTreeMap<String, HostScript>,
    /// Host and tag.
    living: BTreeSet<(String, String)>,
    /// What was asked, in order.
    calls: Vec<String>,
}

/// Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Fleet {
    id: &'static str,
    world: Arc<Mutex<World>>,
}

impl Default for Fleet {
    fn default() -> Self {
        Self::new("ext.fleet")
    }
}

impl Fleet {
    pub fn new(id: &'static str) -> Self {
        Self { id, world: Arc::default() }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn script(&self, host: &str, change: impl FnOnce(&mut HostScript)) {
        change(self.world().scripts.entry(host.to_owned()).or_default());
    }

    /// Tags that live on a host.
    pub fn living(&self, host: &str) -> Vec<String> {
        let world = self.world();
        world.living.iter().filter(|(on, _)| on == host).map(|(_, tag)| tag.clone()).collect()
    }

    /// Something that lives and that no row knows.
    pub fn plant(&self, host: &str, tag: &str) {
        self.world().living.insert((host.to_owned(), tag.to_owned()));
    }

    /// Ends a sandbox behind everybody's back.
    pub fn lose(&self, host: &str, tag: &str) {
        self.world().living.remove(&(host.to_owned(), tag.to_owned()));
    }

    /// What was asked since the last time, each as `provision a`.
    pub fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.world().calls)
    }

    /// Notes the call and answers with what the script says about it.
    fn called(&self, what: &str, host: &str, fault: impl Fn(&HostScript) -> Option<ErrorKind>) -> Result<()> {
        let mut world = self.world();
        world.calls.push(format!("{what} {host}"));
        match world.scripts.get(host).and_then(fault) {
            Some(kind) => Err(Error::new(kind, format!("the script of {host} says no to {what}"))),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Extension for Fleet {
    fn describe(&self) -> Description {
        Description {
            id: self.id.into(),
            summary: "runs on every host of the test".into(),
            capability: Capability {
                isolation: IsolationLevel::Container,
                exec: true,
                image_host: true,
                idle_reap: true,
                self_hosted: true,
                host_local: true,
                host_ssh: true,
                ..Capability::default()
            },
            pricing: "self-hosted".into(),
            configuration: Default::default(),
        }
    }

    async fn check(&self, host: &str) -> Result<CheckReport> {
        self.called("check", host, |script| script.check)?;
        Ok(CheckReport { ok: true, items: Vec::new() })
    }

    async fn provision(&self, request: ProvisionRequest) -> Result<Handle> {
        let host = request.host;
        let after = self.world().scripts.get(&host).is_some_and(|script| script.after_effect);
        let answer = self.called("provision", &host, |script| script.provision);
        if answer.is_ok() || after {
            self.plant(&host, &request.tag);
        }
        if self.world().scripts.get(&host).is_some_and(|script| script.hangs) {
            std::future::pending::<()>().await;
        }
        answer?;
        Ok(Handle {
            tag: request.tag,
            host,
            effective: IsolationLevel::Container,
            controls: Vec::new(),
            degraded: false,
            data: serde_json::Value::Null,
        })
    }

    async fn wait_ready(&self, _handle: &Handle) -> Result<Reachability> {
        Ok(Reachability {
            method: "exec".into(),
            endpoint: String::new(),
            probe: "scripted".into(),
            ports: Vec::new(),
        })
    }

    async fn teardown(&self, host: &str, tag: &str, _handle: Option<&Handle>) -> Result<CleanupReport> {
        self.called("teardown", host, |script| script.teardown)?;
        let was_there = self.world().living.remove(&(host.to_owned(), tag.to_owned()));
        let removed = was_there.then(|| format!("sandbox {tag}"));
        Ok(CleanupReport { removed: removed.into_iter().collect(), left: Vec::new() })
    }

    async fn list(&self, host: &str, tag_prefix: &str) -> Result<Vec<Found>> {
        self.called("list", host, |script| script.list)?;
        let found = |tag: String| Found { parts: vec![format!("sandbox {tag}")], tag, alive: true };
        Ok(self.living(host).into_iter().filter(|tag| tag.starts_with(tag_prefix)).map(found).collect())
    }

    async fn status(&self, handle: &Handle) -> Result<BackendStatus> {
        self.called("status", &handle.host, |script| script.list)?;
        let alive = self.world().living.contains(&(handle.host.clone(), handle.tag.clone()));
        Ok(BackendStatus { alive, ended_at: None, usage: None, detail: serde_json::Value::Null })
    }

    async fn host_facts(&self, host: &str) -> Result<serde_json::Value> {
        self.called("facts", host, |script| script.check)?;
        let foreign = self.living(host).into_iter().filter(|tag| !tag.starts_with(SandboxId::PREFIX));
        let foreign: Vec<String> = foreign.collect();
        Ok(json!({ "kernel": { "release": format!("of {host}") }, "foreign": { "containers": foreign } }))
    }
}
