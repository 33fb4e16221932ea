//! An extension without a backend: it remembers what lives and fails, waits or loses as the script says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::capability::Capability;
use sandboxer_core::exec::{ExecControl, ExecOutcome, ExecSession, ExecSpec, TtySize};
use sandboxer_core::extension::{
    BackendStatus, CheckReport, CleanupReport, Credential, Description, Extension, Found, Handle, Leftover,
    ProvisionRequest, Reachability,
};
use sandboxer_core::isolation::{Control, IsolationLevel, Outcome};
use sandboxer_core::snapshot::Taken;
use sandboxer_core::{Error, ErrorKind, Result, SnapshotId};

/// What goes wrong, and how long things take.
#[derive(Clone, Debug, Default)]
pub struct Script {
    pub provision_takes: Duration,
    pub provision_fails: bool,
    /// The sandbox is there although provision failed: the answer got lost.
    pub provision_fails_after_effect: bool,
    pub probe_fails: bool,
    pub probe_takes: Duration,
    pub teardown_fails: bool,
    pub teardown_leaves: bool,
    /// How long the backend takes to say how a sandbox is.
    pub status_takes: Duration,
    pub exec_exit_code: i32,
    /// It can pause, snapshot, restore and fork.
    pub checkpoints: bool,
    pub pause_fails: bool,
    pub snapshot_takes: Duration,
    pub snapshot_fails: bool,
    /// The checkpoint is there although it failed: the answer got lost.
    pub snapshot_fails_after_effect: bool,
    pub snapshot_delete_fails: bool,
    /// A checkpoint cannot go while something lives that was started from it.
    pub snapshot_needed: bool,
    /// Of so many restores the last ones fail.
    pub restores_left: Option<u32>,
    /// What a provision tells while it goes on.
    pub progress: Vec<String>,
}

#[derive(Debug, Default)]
struct World {
    script: Script,
    living: BTreeSet<String>,
    /// When those ended of which the backend can say it.
    ended: BTreeMap<String, Timestamp>,
    paused: BTreeSet<String>,
    /// What is inside a sandbox or a checkpoint; the same text in a copy.
    contents: BTreeMap<String, String>,
    snapshots: BTreeSet<String>,
    /// Which checkpoint a sandbox was started from.
    origins: BTreeMap<String, String>,
    provisioned: u64,
    snapshots_begun: u64,
    /// The key that each provision came with.
    credentials: Vec<Option<String>>,
    /// In whose account each tag is, where that is not the platform's.
    accounts: BTreeMap<String, String>,
    most_at_once: usize,
    under_way: usize,
}

/// Cheap to clone; all clones are one. It has accounts: what was made with one key is not there for another one. Keys that
/// are the same before a dot are of one account.
#[derive(Clone, Default)]
pub struct Scripted {
    world: Arc<Mutex<World>>,
    key: Option<Credential>,
}

impl Scripted {
    pub const ID: &str = "ext.native";

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn script(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.world().script);
    }

    fn account(&self) -> Option<&str> {
        self.key.as_ref().map(|key| key.expose().split('.').next().unwrap_or_default())
    }

    /// It lives, and in this account.
    fn has(&self, world: &World, tag: &str) -> bool {
        world.living.contains(tag) && self.is_mine(world, tag)
    }

    fn is_mine(&self, world: &World, tag: &str) -> bool {
        world.accounts.get(tag).map(String::as_str) == self.account()
    }

    /// Tags that live in the backend.
    pub fn living(&self) -> Vec<String> {
        self.world().living.iter().cloned().collect()
    }

    /// How often something new was made.
    pub fn provisioned(&self) -> u64 {
        self.world().provisioned
    }

    /// The key that each provision came with, in order.
    pub fn credentials(&self) -> Vec<Option<String>> {
        self.world().credentials.clone()
    }

    /// How many checkpoints were begun, whatever became of them.
    pub fn snapshots_begun(&self) -> u64 {
        self.world().snapshots_begun
    }

    /// The most provisions that were under way at the same time.
    pub fn most_at_once(&self) -> usize {
        self.world().most_at_once
    }

    /// Tags that stand still.
    pub fn paused(&self) -> Vec<String> {
        self.world().paused.iter().cloned().collect()
    }

    /// Checkpoints that the backend has.
    pub fn snapshots(&self) -> Vec<String> {
        self.world().snapshots.iter().cloned().collect()
    }

    /// What is inside.
    pub fn contents(&self, tag: &str) -> Option<String> {
        self.world().contents.get(tag).cloned()
    }

    /// Puts something inside.
    pub fn fill(&self, tag: &str, text: &str) {
        self.world().contents.insert(tag.to_owned(), text.to_owned());
    }

    /// Stops a sandbox behind everybody's back.
    pub fn freeze(&self, tag: &str) {
        self.world().paused.insert(tag.to_owned());
    }

    /// A checkpoint that no row knows.
    pub fn plant_snapshot(&self, tag: &str) {
        self.world().snapshots.insert(tag.to_owned());
    }

    /// Something that lives and that no row knows.
    pub fn plant(&self, tag: &str) {
        self.world().living.insert(tag.to_owned());
    }

    /// The same in the account of this key.
    pub fn plant_for(&self, tag: &str, key: &str) {
        let mut world = self.world();
        world.living.insert(tag.to_owned());
        world.accounts.insert(tag.to_owned(), key.split('.').next().unwrap_or_default().to_owned());
    }

    /// Ends a sandbox behind everybody's back.
    pub fn lose(&self, tag: &str) {
        self.world().living.remove(tag);
    }

    /// The same, and the backend says when that was: the truth or not.
    pub fn end_at(&self, tag: &str, at: Timestamp) {
        let mut world = self.world();
        world.living.remove(tag);
        world.ended.insert(tag.to_owned(), at);
    }
}

#[async_trait]
impl Extension for Scripted {
    fn describe(&self) -> Description {
        let checkpoints = self.world().script.checkpoints;
        Description {
            id: Self::ID.into(),
            summary: "does as the test says".into(),
            capability: Capability {
                isolation: IsolationLevel::Container,
                exec: true,
                extend_ttl: true,
                idle_reap: true,
                image_host: true,
                pause: checkpoints,
                snapshot: checkpoints,
                restore: checkpoints,
                fork: checkpoints,
                self_hosted: true,
                host_local: true,
                ..Capability::default()
            },
            pricing: "self-hosted".into(),
            configuration: Default::default(),
        }
    }

    fn with_key(&self, key: &Credential) -> Option<Arc<dyn Extension>> {
        Some(Arc::new(Self { world: self.world.clone(), key: Some(key.clone()) }))
    }

    async fn check(&self, _host: &str) -> Result<CheckReport> {
        Ok(CheckReport { ok: true, items: Vec::new() })
    }

    async fn provision(&self, request: ProvisionRequest) -> Result<Handle> {
        let script = {
            let mut world = self.world();
            world.under_way += 1;
            world.credentials.push(self.key.as_ref().map(|it| it.expose().to_owned()));
            world.most_at_once = world.most_at_once.max(world.under_way);
            world.script.clone()
        };
        let _leaving = Leaving(self);
        for line in &script.progress {
            request.progress.say(line);
        }
        tokio::time::sleep(script.provision_takes).await;
        if script.provision_fails {
            return Err(Error::new(ErrorKind::BackendFailed, "the script says no"));
        }
        {
            let mut world = self.world();
            if let Some(from) = &request.from {
                let from = from.snapshot_id.to_string();
                if !world.snapshots.contains(&from) {
                    return Err(Error::new(
                        ErrorKind::SnapshotNotFound,
                        "the backend has no such checkpoint",
                    ));
                }
                match &mut world.script.restores_left {
                    Some(0) => return Err(Error::new(ErrorKind::NoSpace, "no room for one more")),
                    Some(left) => *left -= 1,
                    None => {}
                }
                if let Some(text) = world.contents.get(&from).cloned() {
                    world.contents.insert(request.tag.clone(), text);
                }
                world.origins.insert(request.tag.clone(), from);
            }
            if world.living.insert(request.tag.clone()) {
                world.provisioned += 1;
            }
            if let Some(account) = self.account() {
                world.accounts.insert(request.tag.clone(), account.to_owned());
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
        let takes = self.world().script.probe_takes;
        if takes > Duration::ZERO {
            tokio::time::sleep(takes).await;
        }
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
        let removed = {
            let mut world = self.world();
            let is_mine = self.is_mine(&world, tag);
            if is_mine {
                world.paused.remove(tag);
            }
            (is_mine && world.living.remove(tag)).then(|| tag.to_owned())
        };
        Ok(CleanupReport { removed: removed.into_iter().collect(), left: Vec::new() })
    }

    async fn list(&self, _host: &str, tag_prefix: &str) -> Result<Vec<Found>> {
        let world = self.world();
        let tags = world.living.iter().chain(&world.snapshots).filter(|tag| tag.starts_with(tag_prefix));
        let tags = tags.filter(|tag| self.is_mine(&world, tag));
        Ok(tags.map(|tag| Found { tag: tag.clone(), alive: true, parts: Vec::new() }).collect())
    }

    async fn status(&self, handle: &Handle) -> Result<BackendStatus> {
        let takes = self.world().script.status_takes;
        if takes > Duration::ZERO {
            tokio::time::sleep(takes).await;
        }
        let world = self.world();
        Ok(match self.has(&world, &handle.tag) {
            true => BackendStatus::alive(None, serde_json::Value::Null),
            false if !self.is_mine(&world, &handle.tag) => {
                BackendStatus::ended(None, serde_json::Value::Null)
            }
            false => BackendStatus::ended(world.ended.get(&handle.tag).copied(), serde_json::Value::Null),
        })
    }

    async fn extend(&self, handle: &Handle, _expires_at: Timestamp) -> Result<()> {
        if self.is_mine(&self.world(), &handle.tag) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::SandboxNotFound, "it is not running"))
    }

    async fn exec(&self, handle: &Handle, _spec: ExecSpec) -> Result<ExecSession> {
        if !self.has(&self.world(), &handle.tag) {
            return Err(Error::new(ErrorKind::SandboxNotFound, "it is not running"));
        }
        if self.world().paused.contains(&handle.tag) {
            return Err(Error::new(ErrorKind::Timeout, "it stands still"));
        }
        let exit_code = self.world().script.exec_exit_code;
        Ok(ExecSession {
            stdin: None,
            stdout: Box::pin(std::io::Cursor::new(b"scripted output".to_vec())),
            stderr: None,
            control: Arc::new(Finished(exit_code)),
        })
    }

    async fn pause(&self, handle: &Handle) -> Result<()> {
        let mut world = self.world();
        if world.script.pause_fails {
            return Err(Error::new(ErrorKind::BackendFailed, "it cannot be stopped"));
        }
        if !self.has(&world, &handle.tag) {
            return Err(Error::new(ErrorKind::SandboxNotFound, "it is not running"));
        }
        world.paused.insert(handle.tag.clone());
        Ok(())
    }

    async fn resume(&self, handle: &Handle) -> Result<()> {
        let mut world = self.world();
        if !self.is_mine(&world, &handle.tag) {
            return Err(Error::new(ErrorKind::SandboxNotFound, "it is not running"));
        }
        world.paused.remove(&handle.tag);
        Ok(())
    }

    async fn snapshot(&self, handle: &Handle, id: SnapshotId) -> Result<Taken> {
        let script = {
            let mut world = self.world();
            world.snapshots_begun += 1;
            world.script.clone()
        };
        tokio::time::sleep(script.snapshot_takes).await;
        if script.snapshot_fails {
            return Err(Error::new(ErrorKind::NoSpace, "no room for a checkpoint"));
        }
        let mut world = self.world();
        if !self.has(&world, &handle.tag) {
            return Err(Error::new(ErrorKind::SandboxNotFound, "it is not running"));
        }
        world.snapshots.insert(id.to_string());
        if let Some(account) = self.account() {
            world.accounts.insert(id.to_string(), account.to_owned());
        }
        if let Some(text) = world.contents.get(&handle.tag).cloned() {
            world.contents.insert(id.to_string(), text);
        }
        if script.snapshot_fails_after_effect {
            return Err(Error::new(ErrorKind::Timeout, "the answer got lost"));
        }
        Ok(Taken { snapshot_id: id, size_bytes: Some(7), data: serde_json::Value::Null })
    }

    async fn snapshot_delete(
        &self,
        _host: &str,
        id: SnapshotId,
        _taken: Option<&Taken>,
    ) -> Result<CleanupReport> {
        let mut world = self.world();
        if world.script.snapshot_delete_fails {
            return Err(Error::new(ErrorKind::Unreachable, "the backend is away"));
        }
        let tag = id.to_string();
        let needed = world.origins.iter().any(|(of, from)| *from == tag && world.living.contains(of));
        if world.script.snapshot_needed && needed {
            return Err(Error::new(ErrorKind::Conflict, "a living sandbox was started from it"));
        }
        let removed = (self.is_mine(&world, &tag) && world.snapshots.remove(&tag)).then(|| tag.clone());
        Ok(CleanupReport { removed: removed.into_iter().collect(), left: Vec::new() })
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
