//! An extension without a backend: it remembers what lives and fails, waits or loses as the script says.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::capability::Capability;
use sandboxer_core::exec::{ExecControl, ExecOutcome, ExecSession, ExecSpec, TtySize};
use sandboxer_core::extension::{
    BackendStatus, CheckReport, CleanupReport, Description, Extension, Found, Handle, Leftover,
    ProvisionRequest, Reachability,
};
use sandboxer_core::isolation::{Control, IsolationLevel, Outcome};
use sandboxer_core::{Error, ErrorKind, Result};

/// What goes wrong, and how long things take.
#[derive(Clone, Debug, Default)]
pub struct Script {
    pub provision_takes: Duration,
    pub provision_fails: bool,
    /// The sandbox is there although provision failed: the answer got lost.
    pub provision_fails_after_effect: bool,
    pub probe_fails: bool,
    pub teardown_fails: bool,
    pub teardown_leaves: bool,
    pub exec_exit_code: i32,
}

#[derive(Debug, Default)]
struct World {
    script: Script,
    living: BTreeSet<String>,
    provisioned: u64,
    most_at_once: usize,
    under_way: usize,
}

/// Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Scripted(Arc<Mutex<World>>);

impl Scripted {
    pub const ID: &str = "ext.native";

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn script(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.world().script);
    }

    /// Tags that live in the backend.
    pub fn living(&self) -> Vec<String> {
        self.world().living.iter().cloned().collect()
    }

    /// How often something new was made.
    pub fn provisioned(&self) -> u64 {
        self.world().provisioned
    }

    /// The most provisions that were under way at the same time.
    pub fn most_at_once(&self) -> usize {
        self.world().most_at_once
    }

    /// Something that lives and that no row knows.
    pub fn plant(&self, tag: &str) {
        self.world().living.insert(tag.to_owned());
    }

    /// Ends a sandbox behind everybody's back.
    pub fn lose(&self, tag: &str) {
        self.world().living.remove(tag);
    }
}

#[async_trait]
impl Extension for Scripted {
    fn describe(&self) -> Description {
        Description {
            id: Self::ID.into(),
            summary: "does as the test says".into(),
            capability: Capability {
                isolation: IsolationLevel::Container,
                exec: true,
                extend_ttl: true,
                idle_reap: true,
                image_host: true,
                self_hosted: true,
                host_local: true,
                ..Capability::default()
            },
            pricing: "self-hosted".into(),
            configuration: Default::default(),
        }
    }

    async fn check(&self, _host: &str) -> Result<CheckReport> {
        Ok(CheckReport { ok: true, items: Vec::new() })
    }

    async fn provision(&self, request: ProvisionRequest) -> Result<Handle> {
        let script = {
            let mut world = self.world();
            world.under_way += 1;
            world.most_at_once = world.most_at_once.max(world.under_way);
            world.script.clone()
        };
        let _leaving = Leaving(self);
        tokio::time::sleep(script.provision_takes).await;
        if script.provision_fails {
            return Err(Error::new(ErrorKind::BackendFailed, "the script says no"));
        }
        {
            let mut world = self.world();
            if world.living.insert(request.tag.clone()) {
                world.provisioned += 1;
            }
        }
        if script.provision_fails_after_effect {
            return Err(Error::new(ErrorKind::Timeout, "the answer got lost"));
        }
        let control = Control { name: "script".into(), outcome: Outcome::Enforced, detail: String::new() };
        Ok(Handle {
            tag: request.tag,
            host: request.host,
            effective: IsolationLevel::Container,
            controls: vec![control],
            degraded: false,
            data: serde_json::Value::Null,
        })
    }

    async fn wait_ready(&self, _handle: &Handle) -> Result<Reachability> {
        if self.world().script.probe_fails {
            return Err(Error::new(ErrorKind::BackendFailed, "the probe got no answer"));
        }
        Ok(Reachability {
            method: "exec".into(),
            endpoint: String::new(),
            probe: "scripted".into(),
            ports: Vec::new(),
        })
    }

    async fn teardown(&self, _host: &str, tag: &str, _handle: Option<&Handle>) -> Result<CleanupReport> {
        let script = self.world().script.clone();
        if script.teardown_fails {
            return Err(Error::new(ErrorKind::BackendFailed, "the backend is away"));
        }
        if script.teardown_leaves {
            let left = Leftover { what: "a mount".into(), reason: "busy".into() };
            return Ok(CleanupReport { removed: Vec::new(), left: vec![left] });
        }
        let removed = self.world().living.remove(tag).then(|| tag.to_owned());
        Ok(CleanupReport { removed: removed.into_iter().collect(), left: Vec::new() })
    }

    async fn list(&self, _host: &str, tag_prefix: &str) -> Result<Vec<Found>> {
        let world = self.world();
        let tags = world.living.iter().filter(|tag| tag.starts_with(tag_prefix));
        Ok(tags.map(|tag| Found { tag: tag.clone(), alive: true, parts: Vec::new() }).collect())
    }

    async fn status(&self, handle: &Handle) -> Result<BackendStatus> {
        let alive = self.world().living.contains(&handle.tag);
        Ok(BackendStatus { alive, usage: None, detail: serde_json::Value::Null })
    }

    async fn extend(&self, _handle: &Handle, _expires_at: Timestamp) -> Result<()> {
        Ok(())
    }

    async fn exec(&self, handle: &Handle, _spec: ExecSpec) -> Result<ExecSession> {
        if !self.world().living.contains(&handle.tag) {
            return Err(Error::new(ErrorKind::SandboxNotFound, "it is not running"));
        }
        let exit_code = self.world().script.exec_exit_code;
        Ok(ExecSession {
            stdin: None,
            stdout: Box::pin(std::io::Cursor::new(b"scripted output".to_vec())),
            stderr: None,
            control: Arc::new(Finished(exit_code)),
        })
    }
}

struct Leaving<'a>(&'a Scripted);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.world().under_way -= 1;
    }
}

struct Finished(i32);

#[async_trait]
impl ExecControl for Finished {
    async fn wait(&self) -> Result<ExecOutcome> {
        Ok(ExecOutcome { exit_code: self.0, ..ExecOutcome::default() })
    }

    async fn signal(&self, _signal: i32, _whole_tree: bool) -> Result<()> {
        Ok(())
    }

    async fn resize(&self, _size: TtySize) -> Result<()> {
        Ok(())
    }
}
