//! A service elsewhere that does as the test says.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sandboxer_core::capability::Capability;
use sandboxer_core::extension::{
    BackendStatus, CheckReport, CleanupReport, Description, Extension, Found, Handle, Location,
    ProvisionRequest, Reachability,
};
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::{Error, ErrorKind, Result};

/// How a provision goes.
#[derive(Clone, Default)]
pub(crate) struct Script {
    pub(crate) takes: Duration,
    pub(crate) fails: Option<Error>,
    /// So often; always without it.
    pub(crate) times: Option<u32>,
    /// The sandbox is there although it failed.
    pub(crate) after_effect: bool,
    /// Neither list nor teardown answer.
    pub(crate) is_away: bool,
}

#[derive(Default)]
struct World {
    script: Script,
    living: BTreeSet<String>,
    calls: Vec<&'static str>,
    made: u32,
}

/// Cheap to clone; all clones are one.
#[derive(Clone)]
pub(crate) struct Provider {
    id: String,
    capability: Capability,
    location: Location,
    world: Arc<Mutex<World>>,
}

impl Provider {
    /// One that costs nothing.
    pub(crate) fn new(id: &str) -> Self {
        let capability = Capability {
            isolation: IsolationLevel::Container,
            exec: true,
            image_host: true,
            idle_reap: true,
            self_hosted: true,
            ..Capability::default()
        };
        Self { id: id.into(), capability, location: Location::default(), world: Arc::default() }
    }

    /// One that has to be paid: it needs a price.
    pub(crate) fn metered(id: &str) -> Self {
        let mut one = Self::new(id);
        one.capability.self_hosted = false;
        one
    }

    pub(crate) fn located(mut self, region: &str, residency: &str) -> Self {
        self.location = Location { regions: vec![region.into()], residency: vec![residency.into()] };
        self
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn script(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.world().script);
    }

    pub(crate) fn fails(&self, error: Error) {
        self.script(|script| script.fails = Some(error));
    }

    pub(crate) fn recovers(&self) {
        self.script(|script| *script = Script::default());
    }

    /// It has none of them any more, and nobody asked for that.
    pub(crate) fn lose(&self) {
        self.world().living.clear();
    }

    pub(crate) fn living(&self) -> usize {
        self.world().living.len()
    }

    /// How many were made in all.
    pub(crate) fn made(&self) -> u32 {
        self.world().made
    }

    /// Whether anything was asked since the last time.
    pub(crate) fn was_asked(&self) -> bool {
        !self.world().calls.is_empty()
    }

    /// What was asked since the last time.
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.world().calls)
    }

    fn called(&self, what: &'static str) -> Result<()> {
        let mut world = self.world();
        world.calls.push(what);
        if world.script.is_away {
            return Err(Error::new(ErrorKind::Unreachable, "nobody answers"));
        }
        Ok(())
    }

    fn make(&self, tag: &str) {
        let mut world = self.world();
        if world.living.insert(tag.to_owned()) {
            world.made += 1;
        }
    }
}

#[async_trait]
impl Extension for Provider {
    fn describe(&self) -> Description {
        Description {
            id: self.id.clone(),
            summary: "a service of the test".into(),
            capability: self.capability.clone(),
            pricing: "metered".into(),
            configuration: Default::default(),
        }
    }

    fn location(&self) -> Location {
        self.location.clone()
    }

    async fn check(&self, _host: &str) -> Result<CheckReport> {
        Ok(CheckReport { ok: true, items: Vec::new() })
    }

    async fn provision(&self, request: ProvisionRequest) -> Result<Handle> {
        let script = {
            let mut world = self.world();
            world.calls.push("provision");
            let mut script = world.script.clone();
            match &mut world.script.times {
                Some(0) => script.fails = None,
                Some(left) => *left -= 1,
                None => {}
            }
            script
        };
        tokio::time::sleep(script.takes).await;
        if let Some(error) = script.fails {
            if script.after_effect {
                self.make(&request.tag);
            }
            return Err(error);
        }
        self.make(&request.tag);
        Ok(Handle {
            tag: request.tag,
            host: request.host,
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

    async fn teardown(&self, _host: &str, tag: &str, _handle: Option<&Handle>) -> Result<CleanupReport> {
        self.called("teardown")?;
        let removed = self.world().living.remove(tag).then(|| tag.to_owned());
        Ok(CleanupReport { removed: removed.into_iter().collect(), left: Vec::new() })
    }

    async fn list(&self, _host: &str, tag_prefix: &str) -> Result<Vec<Found>> {
        self.called("list")?;
        let world = self.world();
        let tags = world.living.iter().filter(|tag| tag.starts_with(tag_prefix));
        Ok(tags.map(|tag| Found { tag: tag.clone(), alive: true, parts: Vec::new() }).collect())
    }

    async fn status(&self, handle: &Handle) -> Result<BackendStatus> {
        let alive = self.world().living.contains(&handle.tag);
        Ok(BackendStatus { alive, ended_at: None, usage: None, detail: serde_json::Value::Null })
    }
}
