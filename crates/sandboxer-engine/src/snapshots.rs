//! Snapshots: take, look at, delete, and settle what a crash left half done.

use sandboxer_core::event::NewEvent;
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::snapshot::{Snapshot, SnapshotRecord};
use sandboxer_core::{Dur, Error, ErrorKind, Result, SandboxId, SnapshotId};
use sandboxer_store::{SnapshotFilter, Stored, StoredSnapshot};
use serde_json::json;

use crate::hold::{Held, detached, in_time};
use crate::reach::own_key_of;
use crate::{Caller, Engine, Work, fault};

const LONGEST_NAME: usize = 128;

/// What becomes of a snapshot that its backend still needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InUse {
    /// It stays, and whoever asked is told.
    Keep,
    /// It goes when it can.
    TryLater,
}

/// Whose snapshots are settled. A host that does not answer holds up nobody who asks for what is here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    Here,
    Elsewhere,
}

impl Engine {
    /// Takes a checkpoint of a living sandbox, paused or not.
    pub async fn snapshot(&self, caller: &Caller, id: SandboxId, name: Option<String>) -> Result<Snapshot> {
        if name.as_deref().is_some_and(|name| !is_name(name)) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("a snapshot's name has 1 to {LONGEST_NAME} printable characters"),
            ));
        }
        let (engine, caller) = (self.clone(), caller.clone());
        let taken = detached(async move { engine.take_snapshot(&caller, id, name, false).await }).await?;
        Ok(taken.record.snapshot)
    }

    /// One that is `doomed` stays leased to this process and goes when that ends, if not before.
    pub(crate) fn take_snapshot<'a>(
        &'a self,
        caller: &'a Caller,
        id: SandboxId,
        name: Option<String>,
        doomed: bool,
    ) -> Work<'a, StoredSnapshot> {
        Box::pin(async move {
            let stored = self.load(caller, id).await?;
            let description = self.description_of(&stored)?;
            if !description.capability.snapshot {
                return Err(Error::unsupported(&description.id, "snapshots"));
            }
            // As long as a provision of the same thing may take: both move all of its data.
            let span = self.provision_limit(&stored)?;
            let held = self.hold(caller, id, span).await?;
            let taken = self.take_of_held(&held, name, doomed, span).await;
            let stored = self.let_go(held, None).await?;
            self.or_settle(stored, taken).await
        })
    }

    async fn take_of_held(
        &self,
        held: &Held,
        name: Option<String>,
        doomed: bool,
        span: Dur,
    ) -> Result<StoredSnapshot> {
        let record = new_record(&held.stored, name, self.now());
        let (id, sandbox) = (record.snapshot.snapshot_id, record.snapshot.sandbox_id);
        fault::point("engine.snapshot.before_intent");
        let intent = self.inner.store.snapshot_insert(record, doomed, self.lease_for(span)).await?;
        fault::point("engine.snapshot.after_intent");
        let taken = in_time(span, "snapshot", held.extension.snapshot(&held.handle, id)).await;
        fault::point("engine.snapshot.after_effect");
        let recorded = match taken {
            Ok(taken) => {
                let snapshot = &intent.record.snapshot;
                let about =
                    json!({ "snapshot_id": id, "name": snapshot.name, "size_bytes": taken.size_bytes });
                let fact = NewEvent::fact("snapshot.created", self.now(), about);
                self.inner.store.snapshot_taken(&intent, taken, doomed, fact).await
            }
            Err(error) => Err(error),
        };
        fault::point("engine.snapshot.after_taken");
        match recorded {
            Ok(stored) => Ok(stored),
            // What may have been made must not stay; where that fails, the row stays and is settled later.
            Err(error) => {
                if let Err(cleanup) = self.forget(intent, InUse::TryLater).await {
                    tracing::warn!(error = ?cleanup, sandbox = %sandbox, snapshot = %id, "a failed snapshot is left to be removed later");
                }
                Err(error)
            }
        }
    }

    pub async fn snapshot_get(&self, caller: &Caller, id: SnapshotId) -> Result<Snapshot> {
        Ok(self.load_snapshot(caller, id).await?.record.snapshot)
    }

    /// One page, newest first.
    pub async fn snapshot_list(
        &self,
        caller: &Caller,
        mut filter: SnapshotFilter,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<Snapshot>> {
        if let Some(key) = caller.visible_key() {
            filter.owner_key = Some(key);
        }
        self.inner.store.snapshot_list(&filter, cursor, limit).await
    }

    /// Removes it from its backend. `Conflict` where living sandboxes need it there.
    pub async fn snapshot_delete(&self, caller: &Caller, id: SnapshotId) -> Result<Snapshot> {
        let (engine, caller) = (self.clone(), caller.clone());
        detached(async move { engine.delete_snapshot(&caller, id).await }).await
    }

    async fn delete_snapshot(&self, caller: &Caller, id: SnapshotId) -> Result<Snapshot> {
        loop {
            let stored = self.load_snapshot(caller, id).await?;
            if self.is_snapshot_held(&stored) {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!("somebody is working with snapshot {id}"),
                )
                .with_hint("try again when they are done"));
            }
            let lease = self.lease_for(self.inner.limits.teardown_timeout);
            match self.inner.store.snapshot_claim(&stored, true, Some(lease)).await {
                Ok(claimed) => {
                    fault::point("engine.snapshot_delete.after_intent");
                    self.forget(claimed, InUse::Keep).await?;
                    return Ok(stored.record.snapshot);
                }
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The row, if the caller may know of it and there is something behind it.
    pub(crate) async fn load_snapshot(&self, caller: &Caller, id: SnapshotId) -> Result<StoredSnapshot> {
        let stored = self.inner.store.snapshot_get(id).await?.filter(|stored| stored.record.taken.is_some());
        stored.filter(|stored| caller.may_see(stored.record.owner_key.as_deref())).ok_or_else(|| {
            Error::new(ErrorKind::SnapshotNotFound, format!("there is no snapshot {id}"))
                .with_hint("`sandboxer snapshots list` shows those that are there")
        })
    }

    pub(crate) fn is_snapshot_held(&self, stored: &StoredSnapshot) -> bool {
        stored
            .lease
            .as_ref()
            .is_some_and(|lease| lease.until > self.now() && !crate::owner::Owner::is_gone(&lease.owner))
    }

    /// A fork's snapshot, when the fork has ended.
    pub(crate) async fn drop_doomed(&self, stored: StoredSnapshot) -> Result<()> {
        self.forget(stored, InUse::TryLater).await
    }

    /// Finishes what others left: snapshots that were never taken, and those that were to go.
    pub(crate) async fn settle_snapshots(&self, place: Where) -> Result<()> {
        for stored in self.inner.store.snapshots_unsettled().await? {
            let id = stored.record.snapshot.snapshot_id;
            let is_here = stored.record.snapshot.host == sandboxer_core::host::LOCAL;
            if is_here != (place == Where::Here) || self.is_snapshot_held(&stored) {
                continue;
            }
            let lease = self.lease_for(self.inner.limits.teardown_timeout);
            let claimed = match self.inner.store.snapshot_claim(&stored, true, Some(lease)).await {
                Ok(claimed) => claimed,
                // Somebody else settles it.
                Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::SnapshotNotFound) => {
                    continue;
                }
                Err(error) => return Err(error),
            };
            if let Err(error) = self.forget(claimed, InUse::TryLater).await {
                tracing::debug!(error = ?error, snapshot = %id, "a snapshot cannot be removed yet");
            }
        }
        Ok(())
    }

    /// Has the backend remove it and forgets the row, which is held by the caller. A backend that fails leaves the row
    /// to be tried again.
    async fn forget(&self, held: StoredSnapshot, in_use: InUse) -> Result<()> {
        let snapshot = &held.record.snapshot;
        let id = snapshot.snapshot_id;
        let work = async {
            let extension = self.extension_in(&snapshot.extension, snapshot.own_key_of.as_ref()).await?;
            extension.snapshot_delete(&snapshot.host, id, held.record.taken.as_ref()).await
        };
        let report = in_time(self.inner.limits.teardown_timeout, "removal", work).await;
        fault::point("engine.snapshot_delete.after_effect");
        let error = match report {
            Ok(report) if report.is_clean() => {
                let fact = held.record.taken.as_ref().map(|_| {
                    NewEvent::fact(
                        "snapshot.deleted",
                        self.now(),
                        json!({ "snapshot_id": id, "name": snapshot.name }),
                    )
                });
                self.inner.store.snapshot_remove(&held, fact).await?;
                fault::point("engine.snapshot_delete.after_removed");
                return Ok(());
            }
            Ok(report) => {
                let left: Vec<String> =
                    report.left.iter().map(|left| format!("{} ({})", left.what, left.reason)).collect();
                Error::new(ErrorKind::CleanupFailed, format!("the removal left {}", left.join(", ")))
                    .with_hint("it stays listed and is tried again")
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                let doomed = in_use == InUse::TryLater;
                self.inner.store.snapshot_claim(&held, doomed, None).await?;
                return Err(error);
            }
            Err(error) => Error::new(ErrorKind::CleanupFailed, "the backend did not remove the snapshot")
                .with_source(error)
                .with_hint("it stays listed and is tried again"),
        };
        self.inner.store.snapshot_claim(&held, true, None).await?;
        Err(error)
    }
}

fn new_record(of: &Stored, name: Option<String>, now: jiff::Timestamp) -> SnapshotRecord {
    let sandbox = &of.record.sandbox;
    SnapshotRecord {
        snapshot: Snapshot {
            snapshot_id: SnapshotId::generate(),
            sandbox_id: sandbox.sandbox_id,
            profile: sandbox.profile.clone(),
            extension: sandbox.extension.clone(),
            host: sandbox.host.clone(),
            name,
            created_at: now,
            size_bytes: None,
            own_key_of: own_key_of(&of.record),
        },
        spec: of.record.spec.clone(),
        taken: None,
        owner_key: of.record.owner_key.clone(),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= LONGEST_NAME && !name.chars().any(char::is_control)
}
