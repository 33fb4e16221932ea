//! Machines of our own: from a request to a guest that answers, and back to nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use sandboxer_core::exec::{ExecSession, ExecSpec};
use sandboxer_core::extension::{CleanupReport, Found, Handle, Leftover, ProvisionRequest};
use sandboxer_core::snapshot::Taken;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::{Command, Remote};

use crate::files::{blocking, private_folder, remove_tree};
use crate::guest::Guest;
use crate::image::{Image, Images, Lock, Recipe};
use crate::tools::Tools;
use crate::vm::process::{self, Process};
use crate::vm::{self, Boot, Place, Places, Record, Size, Snapshots};
use crate::{Settings, deadline};

/// How long a killed QEMU may take to go.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Connections to guests that are kept open.
const MAX_REMOTES: usize = 64;
/// The folder that commands start in: in the guest's root where that is allowed, else at home.
const MAKE_WORKSPACE: &str = r#"
mkdir -p /workspace 2>/dev/null && [ -w /workspace ] && cd /workspace || { mkdir -p "$HOME/workspace" && cd "$HOME/workspace"; } || exit 1
pwd -P"#;

pub(crate) struct Machines {
    settings: Settings,
    state_dir: PathBuf,
    images: Images,
    places: Places,
    snapshots: Snapshots,
    remotes: Mutex<BTreeMap<(String, u16), Remote>>,
}

impl Machines {
    pub(crate) fn new(settings: Settings, state_dir: PathBuf) -> Self {
        Self {
            settings,
            images: Images::new(state_dir.join("images")),
            places: Places::new(state_dir.join("vms")),
            snapshots: Snapshots::new(state_dir.join("snapshots")),
            remotes: Mutex::default(),
            state_dir,
        }
    }

    pub(crate) fn images(&self) -> &Images {
        &self.images
    }

    pub(crate) fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    pub(crate) async fn provision(&self, request: ProvisionRequest) -> Result<Handle> {
        let place = self.places.of(&request.tag)?;
        if let Some(record) = living(&place)? {
            return Ok(record.handle());
        }
        let tools = Tools::find(&self.settings);
        let base = self.base(&request, &tools).await?;
        self.places.prepare()?;
        private_folder(place.folder())?;
        let waiting = || request.progress.say("another create makes this sandbox already; waiting for it");
        let _lock = Lock::take(&place.lock_file(), waiting).await?;
        if let Some(record) = living(&place)? {
            return Ok(record.handle());
        }
        match self.establish(&request, &place, base, &tools).await {
            Ok(record) => Ok(record.handle()),
            Err(error) => {
                let report = self.teardown(&place.tag).await?;
                if let Some(left) = report.left.first() {
                    tracing::warn!("after a failed boot {} is left: {}", left.what, left.reason);
                }
                Err(error)
            }
        }
    }

    /// What the machine starts from: an image that may have to be built, or a snapshot.
    async fn base(&self, request: &ProvisionRequest, tools: &Tools) -> Result<Base> {
        tools.qemu.path()?;
        tools.qemu_img.path()?;
        if let Some(Taken { snapshot_id, .. }) = &request.from {
            let id = snapshot_id.to_string();
            let Some((manifest, folder)) = self.snapshots.get(&id)? else {
                return Err(Error::new(
                    ErrorKind::SnapshotNotFound,
                    format!("there is no snapshot {id} on this machine"),
                ));
            };
            let layers =
                manifest.layers.iter().skip(1).map(|name| (name.clone(), folder.join(name))).collect();
            let image = Image { disk_bytes: manifest.disk_bytes, ..manifest.image };
            return Ok(Base { image, layers, ssh_user: Some(manifest.ssh_user) });
        }
        let options = request.spec.packer.clone();
        let recipe = blocking(move || Recipe::read(&options)).await?;
        let image = self.images.ensure(recipe, tools, &request.progress).await?;
        Ok(Base { image, layers: Vec::new(), ssh_user: None })
    }

    /// Everything that happens under the lock of the tag.
    async fn establish(
        &self,
        request: &ProvisionRequest,
        place: &Place,
        base: Base,
        tools: &Tools,
    ) -> Result<Record> {
        self.clear(place).await?;
        if request.expires_at <= Timestamp::now() {
            return Err(Error::new(
                ErrorKind::Timeout,
                "the sandbox's time was over before its machine could start",
            )
            .with_hint("give it a longer TTL: the first create of a template builds its image"));
        }
        let size = Size::fit(&request.spec.resources, &base.image, vm::Room::here())?;
        // Before there is anything to end, so that nothing can outlive it.
        deadline::arm(place, request.expires_at, request.idle_reap).await?;
        let _in_use = deadline::InUse::new(place, "boot");
        let options = &request.spec.packer;
        let boot = Boot {
            place,
            image: &base.image,
            layers: base.layers,
            size,
            accelerator: vm::Accelerator::here(tools, &self.state_dir).await,
            wanted: &request.spec.resources,
            ssh_user: base.ssh_user.or_else(|| options.ssh_user.clone()).unwrap_or_else(|| "root".into()),
            variables: request.spec.variables.clone(),
            progress: &request.progress,
        };
        let mut record = vm::boot(boot, tools).await?;
        let remote = self.remote(&record, place)?;
        let said = remote.check("making the workspace", Command::script(MAKE_WORKSPACE, [""; 0])).await?;
        record.workspace = said.text();
        if let Some(seed) = &request.seed {
            request.progress.say("copying the workspace into the machine");
            let tar = tokio::fs::File::open(seed)
                .await
                .map_err(|source| crate::files::failed("read", seed, source))?;
            self.guest_of(&record, place)?.archive_put(".", Box::pin(tar)).await?;
        }
        record.write(place)?;
        Ok(record)
    }

    /// Removes what an earlier attempt left, but not the lock that we hold.
    async fn clear(&self, place: &Place) -> Result<()> {
        deadline::disarm(place).await;
        let place = place.clone();
        blocking(move || {
            process::end_all(&place.machine(), END_LIMIT);
            let entries = std::fs::read_dir(place.folder())
                .map_err(|source| crate::files::failed("read", place.folder(), source))?;
            for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
                if path.is_dir() && !path.is_symlink() {
                    remove_tree(&path)?;
                } else if path != place.lock_file() {
                    std::fs::remove_file(&path)
                        .map_err(|source| crate::files::failed("removed", &path, source))?;
                }
            }
            Ok(())
        })
        .await
    }

    pub(crate) async fn teardown(&self, tag: &str) -> Result<CleanupReport> {
        let place = self.places.of(tag)?;
        let mut report = CleanupReport::default();
        if !place.exists() && process::working_in(&place.machine()).is_empty() {
            return Ok(report);
        }
        deadline::disarm(&place).await;
        let known = {
            let mut remotes = self.remotes.lock().unwrap_or_else(PoisonError::into_inner);
            let keys: Vec<_> = remotes.keys().filter(|(owner, _)| owner == tag).cloned().collect();
            keys.iter().filter_map(|key| remotes.remove(key)).collect::<Vec<_>>()
        };
        for remote in known {
            remote.disconnect().await;
        }
        let (ended, left) = blocking(move || {
            let before = process::working_in(&place.machine());
            let mut left = process::end_all(&place.machine(), END_LIMIT);
            remove_tree(place.folder())?;
            // Whoever was just starting it finds no folder any more; what was started meanwhile goes too.
            left.extend(process::end_all(&place.machine(), END_LIMIT));
            Ok((before, left))
        })
        .await?;
        report.removed = ended.iter().map(|process| format!("process {}", process.pid)).collect();
        report.removed.push(format!("machine {tag} and its overlay disk"));
        report.left = left
            .iter()
            .map(|process| Leftover {
                what: format!("process {}", process.pid),
                reason: "it does not end although it was killed".into(),
            })
            .collect();
        Ok(report)
    }

    pub(crate) fn list(&self, prefix: &str) -> Result<Vec<Found>> {
        let snapshots = self.snapshots.all(prefix).into_iter().map(|(id, complete)| Found {
            parts: vec![format!("directory {}", self.snapshots.path(&id).display())],
            tag: id,
            alive: complete,
        });
        Ok(self
            .places
            .all(prefix)?
            .into_iter()
            .map(|place| {
                let processes = process::working_in(&place.machine());
                let alive =
                    Record::read(&place).ok().flatten().is_some_and(|record| record.process.is_alive());
                let parts = processes
                    .iter()
                    .map(|process| format!("process {}", process.pid))
                    .chain([format!("directory {}", place.folder().display())]);
                Found { parts: parts.collect(), tag: place.tag, alive }
            })
            .chain(snapshots)
            .collect())
    }

    /// The machine of a tag, if it runs.
    pub(crate) fn running(&self, tag: &str) -> Result<(Place, Record)> {
        let place = self.places.of(tag)?;
        match living(&place)? {
            Some(record) => Ok((place, record)),
            None => Err(Error::new(
                ErrorKind::SandboxNotFound,
                format!("the machine of {tag} does not run any more"),
            )),
        }
    }

    /// The way into a machine; asking for it is a use of it.
    pub(crate) async fn guest(&self, tag: &str) -> Result<Guest> {
        let (place, record) = self.running(tag)?;
        deadline::touch(&place);
        self.guest_of(&record, &place)
    }

    /// Runs a command; the machine is not idle as long as it runs.
    pub(crate) async fn exec(&self, tag: &str, spec: ExecSpec) -> Result<ExecSession> {
        let (place, record) = self.running(tag)?;
        deadline::touch(&place);
        let id = spec.exec_id;
        let session = self.guest_of(&record, &place)?.exec(spec).await?;
        Ok(deadline::busy(&place, id, session))
    }

    pub(crate) fn guest_of(&self, record: &Record, place: &Place) -> Result<Guest> {
        Ok(Guest {
            remote: self.remote(record, place)?,
            workspace: record.workspace.clone(),
            root: "/".into(),
            variables: record.variables.clone(),
            is_root: record.ssh_user == "root",
            endpoint: format!("{}@127.0.0.1:{}", record.ssh_user, record.port),
            guarded: None,
        })
    }

    /// One connection per machine, kept as long as this process uses it.
    fn remote(&self, record: &Record, place: &Place) -> Result<Remote> {
        let key = (record.tag.clone(), record.port);
        let mut remotes = self.remotes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(remote) = remotes.get(&key) {
            return Ok(remote.clone());
        }
        if remotes.len() >= MAX_REMOTES {
            remotes.clear();
        }
        let remote = Remote::open(&record.guest(place), &self.state_dir)?;
        remotes.insert(key, remote.clone());
        Ok(remote)
    }
}

/// What a machine is made from.
struct Base {
    image: Image,
    layers: Vec<(String, PathBuf)>,
    ssh_user: Option<String>,
}

/// The record of a machine that is complete and runs.
fn living(place: &Place) -> Result<Option<Record>> {
    Ok(Record::read(place)?.filter(|record| Process::is_alive(record.process)))
}
