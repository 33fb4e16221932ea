//! One sync of a mirror: look at both sides, compare with the last agreement, carry out, agree anew.
//!
//! It may be killed between any two steps. Contents are compared, so what was carried out already is then seen as agreed
//! on, and the rest is carried out by the next sync.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandboxer_core::{Error, ErrorKind, Result, SandboxId};
use sandboxer_store::Stored;
use sandboxer_workspace::{
    Cache, Entry, Kind, Manifest, Omissions, Plan, Rules, Scan, agreement, disguised, is_protected,
    is_protected_in, plan,
};
use serde::{Deserialize, Serialize};

use super::apply::Sides;
use super::inside::Inside;
use super::listing::Listing;
use super::mirror::{Lock, Mirror, RemoteCache};
use super::{SyncReport, blocking, mirrored};
use crate::{Caller, Engine, Work, fault};

/// Which way changes may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Into the sandbox.
    Up,
    /// Out of the sandbox.
    Down,
    #[default]
    Both,
}

/// Whose version wins where both changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Prefer {
    Local,
    Sandbox,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SyncOptions {
    #[serde(default)]
    pub direction: Direction,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Ends conflicts in favour of one side. Without it they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer: Option<Prefer>,
}

impl From<Direction> for SyncOptions {
    fn from(direction: Direction) -> Self {
        Self { direction, ..Self::default() }
    }
}

impl Engine {
    /// Syncs a mirror now.
    pub async fn sync(&self, caller: &Caller, id: SandboxId, options: SyncOptions) -> Result<SyncReport> {
        let (stored, extension, handle) = self.usable_backend(caller, id).await?;
        let Some(folder) = mirrored(&stored.record) else {
            return Err(Error::new(ErrorKind::IllegalState, format!("the workspace of sandbox {id} is not a mirror"))
                .with_hint(format!(
                    "`sandboxer sync {id} --down DIR` or `sandboxer cp` brings files out of it; `create --workspace DIR --workspace-mode mirror` makes a mirror"
                )));
        };
        let outcome = self.sync_now(id, Inside { extension, handle }, folder, options).await;
        self.or_settle(stored, outcome).await
    }

    /// In a task of its own: whoever waits may go away, and the lock must not go before the work does.
    pub(super) fn sync_now(
        &self,
        id: SandboxId,
        inside: Inside,
        folder: PathBuf,
        options: SyncOptions,
    ) -> Work<'_, SyncReport> {
        Box::pin(async move {
            let (engine, state) = (self.clone(), self.places()?.mirror(id));
            let work = tokio::spawn(async move {
                let take = state.clone();
                let (lock, mirror) = blocking(move || {
                    let lock = Lock::take(&take)?;
                    Ok((lock, Mirror::load(&take)?))
                })
                .await?;
                let run = Run { engine, id, inside, folder, options, lock };
                run.carry_out(mirror).await
            });
            work.await
                .map_err(|source| Error::new(ErrorKind::Internal, "a sync broke off").with_source(source))?
        })
    }

    /// Before a command of a mirror. Any other sandbox costs a look at its record and nothing more.
    pub(crate) async fn sync_before_exec(
        &self,
        stored: &Stored,
        inside: impl FnOnce() -> Inside,
    ) -> Result<()> {
        let Some(folder) = mirrored(&stored.record) else { return Ok(()) };
        self.sync_now(stored.record.id(), inside(), folder, Direction::Up.into()).await.map(drop).map_err(
            |error| {
                Error::new(error.kind(), "the workspace could not be brought up to date before the command")
                    .with_source(error)
            },
        )
    }
}

struct Run {
    engine: Engine,
    id: SandboxId,
    inside: Inside,
    folder: PathBuf,
    options: SyncOptions,
    /// Until the end, and the folder of the mirror's state.
    lock: Lock,
}

impl Run {
    async fn carry_out(self, mut mirror: Mirror) -> Result<SyncReport> {
        let sides = self.look(std::mem::take(&mut mirror.local), &mirror.remote).await?;
        let view = View::new(&mirror.base, &sides.scan, &sides.listing);
        let plan = self.plan(&view);
        let folder = self.folder.display().to_string();
        let mut report = SyncReport::new(self.id, folder, &plan, self.options.dry_run);
        report.leave_out(&sides.scan.omitted);
        report.leave_out(&sides.listing.omitted);
        if self.options.dry_run {
            return Ok(report);
        }
        fault::point("engine.sync.before_down");
        report.leave_out(&sides.bring_down(&self.inside, &plan).await?);
        fault::point("engine.sync.after_down");
        report.leave_out(&sides.bring_up(&self.inside, &plan).await?);
        fault::point("engine.sync.after_up");
        let told = self.keep_conflicts(&sides, &mut report, &mirror.told).await?;
        let after = match plan.changes() {
            0 => None,
            _ => Some(self.look(sides.scan.cache.clone(), &sides.listing.cache).await?),
        };
        let seen = after.as_ref().unwrap_or(&sides);
        let seen_view = View::new(&mirror.base, &seen.scan, &seen.listing);
        let mut base =
            agreement(&view.base, (&view.local, &view.remote), (&seen_view.local, &seen_view.remote));
        base.0.extend(view.set_aside);
        let unchanged = after.is_none() && base == mirror.base && told == mirror.told;
        if !unchanged || sides.scan.read > 0 || sides.listing.read > 0 {
            let state = self.lock.folder.clone();
            let kept =
                Mirror { base, local: seen.scan.cache.clone(), remote: seen.listing.cache.clone(), told };
            blocking(move || kept.save(&state)).await?;
        }
        Ok(report)
    }

    /// Both sides at the same time.
    async fn look(&self, local: Cache, remote: &RemoteCache) -> Result<Sides> {
        let folder = self.folder.clone();
        let here = blocking(move || {
            let scan = sandboxer_workspace::scan(&folder, &Rules::workspace(), &local)?;
            sandboxer_workspace::sweep_unfinished(&folder, &scan)?;
            Ok(scan)
        });
        let (scan, (mut listing, unknown)) = tokio::try_join!(here, self.inside.list(remote))?;
        listing.drop_ignored(&scan);
        self.inside.read_contents(unknown, &mut listing).await?;
        let (folder, state) = (self.folder.clone(), self.lock.folder.clone());
        Ok(Sides { folder, scan: Arc::new(scan), listing, state })
    }

    fn plan(&self, view: &View) -> Plan {
        let mut plan = plan(&view.base, &view.local, &view.remote);
        if let Some(prefer) = self.options.prefer.filter(|_| !plan.conflicts.is_empty()) {
            // The side that loses counts as the one that did not change.
            let loser = if prefer == Prefer::Local { &view.remote } else { &view.local };
            let mut base = view.base.clone();
            for conflict in &plan.conflicts {
                let below = format!("{}/", conflict.path);
                let concerned = |path: &String| *path == conflict.path || path.starts_with(&below);
                base.0.retain(|path, _| !concerned(path));
                let lost = loser.0.iter().filter(|(path, _)| concerned(path));
                base.0.extend(lost.map(|(path, entry)| (path.clone(), entry.clone())));
            }
            plan = sandboxer_workspace::plan(&base, &view.local, &view.remote);
        }
        match self.options.direction {
            Direction::Both => {}
            Direction::Up => {
                plan.download.clear();
                plan.delete_local.clear();
            }
            Direction::Down => {
                plan.upload.clear();
                plan.delete_remote.clear();
            }
        }
        plan
    }

    /// Keeps a copy of the sandbox's version of each conflict, and tells of those that are new.
    async fn keep_conflicts(
        &self,
        sides: &Sides,
        report: &mut SyncReport,
        told: &BTreeSet<(String, String)>,
    ) -> Result<BTreeSet<(String, String)>> {
        if report.conflicts.is_empty() {
            return Ok(BTreeSet::new());
        }
        let copies = self.lock.folder.join("conflicts");
        let mut now = BTreeSet::new();
        let mut fetch = Vec::new();
        for conflict in &mut report.conflicts {
            let there = sides.listing.manifest.get(&conflict.path);
            let content = there.map(|entry| entry.content.clone()).unwrap_or_default();
            if there.is_some_and(|entry| entry.kind != Kind::Dir) {
                conflict.kept = Some(copies.join(&conflict.path).display().to_string());
                if !told.contains(&(conflict.path.clone(), content.clone())) {
                    fetch.push(conflict.path.clone());
                }
            }
            now.insert((conflict.path.clone(), content));
        }
        if !fetch.is_empty() {
            sides.keep_copies(&self.inside, fetch, copies).await?;
        }
        if !now.is_subset(told) {
            self.engine.tell_conflicts(self.id, report).await;
        }
        Ok(now)
    }
}

/// The three manifests as they are compared: without what is ignored, unknown or not the sandbox's to change.
struct View {
    base: Manifest,
    local: Manifest,
    remote: Manifest,
    /// Of the old agreement, what cannot be judged now and stays agreed on.
    set_aside: Vec<(String, Entry)>,
}

impl View {
    fn new(base: &Manifest, scan: &Scan, listing: &Listing) -> Self {
        let unknown = Unknown::new(&scan.omitted, &listing.omitted);
        let carried = |path: &String, entry: &Entry| {
            // What the walk came by is not ignored.
            scan.manifest.0.contains_key(path)
                || !scan.ignored.ignores(Path::new(path), entry.kind == Kind::Dir)
        };
        let part = |manifest: &Manifest| {
            let kept =
                manifest.0.iter().filter(|(path, entry)| !unknown.covers(path) && carried(path, entry));
            Manifest(kept.map(|(path, entry)| (path.clone(), entry.clone())).collect())
        };
        let (local, mut remote) = (part(&scan.manifest), part(&listing.manifest));
        let set_aside = base.0.iter().filter(|(path, _)| unknown.covers(path));
        let set_aside = set_aside.map(|(path, entry)| (path.clone(), entry.clone())).collect();
        let base = part(base);
        // What the sandbox has made a repository is one, whatever its name.
        let repositories = disguised(&remote);
        let decides =
            |path: &str, kind| is_protected(path, kind) || is_protected_in(&repositories, path, kind);
        remote.0.retain(|path, entry| !decides(path, entry.kind));
        let protected = base.0.iter().filter(|(path, entry)| decides(path, entry.kind));
        remote.0.extend(protected.map(|(path, entry)| (path.clone(), entry.clone())));
        Self { base, local, remote, set_aside }
    }
}

/// Paths about which one side could not tell what is there.
struct Unknown<'a>(BTreeSet<&'a str>);

impl<'a> Unknown<'a> {
    fn new(here: &'a Omissions, there: &'a Omissions) -> Self {
        Self(here.paths.iter().chain(&there.paths).map(String::as_str).collect())
    }

    fn covers(&self, path: &str) -> bool {
        !self.0.is_empty()
            && Path::new(path)
                .ancestors()
                .any(|above| above.to_str().is_some_and(|above| self.0.contains(above)))
    }
}
