//! Bringing rows and backends together: adopt the living, finish the half-done, report the lost.

use std::collections::BTreeMap;

use sandboxer_core::host;
use sandboxer_core::sandbox::reason;
use sandboxer_core::{Error, ErrorKind, Result, SandboxId, State};
use sandboxer_store::Stored;

use crate::Engine;
use crate::destroy::Ending;

/// What a reconciliation found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ReconcileReport {
    /// Living sandboxes that go on.
    pub adopted: Vec<SandboxId>,
    /// Creates and destroys that broke off and were finished.
    pub finished: Vec<SandboxId>,
    /// Sandboxes whose TTL or idle time ended while nobody looked.
    pub expired: Vec<SandboxId>,
    /// Sandboxes that ended before their time.
    pub lost: Vec<SandboxId>,
    /// Remains without a living row that were removed.
    pub removed: Vec<String>,
    /// What could not be settled, and why.
    pub problems: Vec<String>,
}

impl Engine {
    /// Looks at every row that is not destroyed and at everything the extensions still have.
    pub async fn reconcile(&self) -> Result<ReconcileReport> {
        let mut report = ReconcileReport::default();
        let living = self.inner.store.living().await?;
        let mut known: BTreeMap<String, State> = BTreeMap::new();
        for stored in living {
            let (id, before) = (stored.record.id(), stored.record.state());
            match self.settle(stored).await {
                Ok(settled) => {
                    known.insert(id.to_string(), settled.record.state());
                    report.note(id, before, &settled);
                }
                Err(error) => {
                    known.insert(id.to_string(), before);
                    report.problems.push(format!("{id}: {error:?}"));
                }
            }
        }
        self.remove_orphans(&known, &mut report).await;
        Ok(report)
    }

    /// What carries our tag but belongs to no living row. A row is written before anything is provisioned, so nothing
    /// that is being made right now is among them.
    async fn remove_orphans(&self, known: &BTreeMap<String, State>, report: &mut ReconcileReport) {
        for extension in self.inner.registry.iter() {
            let found = match extension.list(host::LOCAL, SandboxId::PREFIX).await {
                Ok(found) => found,
                Err(error) => {
                    report.problems.push(format!("{}: {error:?}", extension.describe().id));
                    continue;
                }
            };
            for orphan in found.into_iter().filter(|found| !known.contains_key(&found.tag)) {
                let Ok(id) = orphan.tag.parse::<SandboxId>() else { continue };
                // Looked up after it was found: a row that was written in between is not an orphan's.
                match self.inner.store.get(id).await {
                    Ok(Some(stored)) if stored.record.state() != State::Destroyed => continue,
                    Ok(_) => {}
                    Err(error) => {
                        report.problems.push(format!("{id}: {error:?}"));
                        continue;
                    }
                }
                match extension.teardown(host::LOCAL, &orphan.tag, None).await {
                    Ok(cleanup) if cleanup.is_clean() => report.removed.push(orphan.tag),
                    Ok(cleanup) => report.problems.push(format!("{}: left {:?}", orphan.tag, cleanup.left)),
                    Err(error) => report.problems.push(format!("{}: {error:?}", orphan.tag)),
                }
            }
        }
    }

    /// Settles a row only where there is reason to: what is ready and in time is believed for free only if it answers.
    pub(crate) async fn settle_if_needed(&self, stored: Stored) -> Result<Stored> {
        if stored.record.state() == State::Destroyed {
            return Ok(stored);
        }
        let id = stored.record.id();
        match self.settle(stored).await {
            // A failed cleanup is shown as it is, not as an error of whoever looks.
            Err(error) if error.kind() == ErrorKind::CleanupFailed => {
                tracing::warn!(error = ?error, sandbox = %id, "a cleanup failed again");
                self.inner.store.get(id).await?.ok_or(error)
            }
            other => other,
        }
    }

    /// Brings one row up to date with its backend.
    pub(crate) async fn settle(&self, stored: Stored) -> Result<Stored> {
        if self.is_being_worked_on(&stored) {
            return Ok(stored);
        }
        match stored.record.state() {
            State::Destroyed => Ok(stored),
            State::Requested | State::Provisioning => {
                let error = Error::new(ErrorKind::BackendFailed, "whoever was creating it is gone");
                self.end(stored, Ending::failed(reason::INTERRUPTED, &error)).await
            }
            State::Destroying | State::Expired | State::Failed => {
                self.end(stored, Ending::because(reason::CLEANUP_RETRY)).await
            }
            State::Ready | State::Active | State::Paused => self.settle_usable(stored).await,
        }
    }

    async fn settle_usable(&self, stored: Stored) -> Result<Stored> {
        let now = self.now();
        if stored.record.sandbox.expires_at <= now {
            return self.end(stored, Ending::expired(reason::TTL)).await;
        }
        let Some(handle) = &stored.record.handle else {
            let error = Error::new(ErrorKind::Internal, "a usable sandbox has no handle");
            return self.end(stored, Ending::failed(reason::LOST, &error)).await;
        };
        if self.extension_of(&stored)?.is_alive(handle).await? {
            return Ok(stored);
        }
        // Gone before its time. With an idle limit that has had time to pass, that is what ended it.
        let since_ready = stored.record.sandbox.ready_at.unwrap_or(stored.record.sandbox.created_at);
        let idle_ended = stored.record.sandbox.idle_reap.is_some_and(|idle| idle.after(since_ready) <= now);
        if idle_ended {
            return self.end(stored, Ending::expired(reason::IDLE)).await;
        }
        let error = Error::new(ErrorKind::BackendFailed, "the sandbox ended before its time")
            .with_hint("its supervisor or its first process was killed, or the machine restarted");
        self.end(stored, Ending::failed(reason::LOST, &error)).await
    }
}

impl ReconcileReport {
    fn note(&mut self, id: SandboxId, before: State, settled: &Stored) {
        let sandbox = &settled.record.sandbox;
        if sandbox.state != State::Destroyed {
            if sandbox.state.is_usable() {
                self.adopted.push(id);
            }
            return;
        }
        match (before, sandbox.reason.as_deref()) {
            (State::Ready | State::Active | State::Paused, Some(reason::TTL | reason::IDLE)) => {
                self.expired.push(id)
            }
            (State::Ready | State::Active | State::Paused, _) => self.lost.push(id),
            _ => self.finished.push(id),
        }
    }
}
