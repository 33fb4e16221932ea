//! Bringing rows and backends together: adopt the living, finish the half-done, report the lost.

use std::collections::BTreeMap;

use sandboxer_core::host::{self, Host};
use sandboxer_core::sandbox::reason;
use sandboxer_core::{Error, ErrorKind, Result, SandboxId, State};
use sandboxer_store::Stored;

use crate::destroy::Ending;
use crate::snapshots::Where;
use crate::{Engine, Work};

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

/// A row that was looked at, with its state before, or what went wrong.
pub(crate) type Settled = std::result::Result<(SandboxId, State, Stored), String>;

impl Engine {
    /// Looks at every row of the engine's own machine that is not destroyed, and at everything of ours on it.
    pub fn reconcile(&self) -> Work<'_, ReconcileReport> {
        Box::pin(async move {
            let mut report = ReconcileReport::default();
            for stored in self.inner.store.living().await? {
                if stored.record.sandbox.host == host::LOCAL {
                    self.reconcile_row(stored, &mut report).await;
                }
            }
            self.settle_snapshots(Where::Here).await?;
            self.remove_orphans(&[Host::local()], &mut report).await?;
            self.sweep_workspaces().await?;
            Ok(report)
        })
    }

    /// The same on every other host, all of them at once. It may take a while when one of them does not answer, so that
    /// nobody should wait for it.
    pub fn reconcile_remote(&self) -> Work<'_, ReconcileReport> {
        Box::pin(async move {
            let hosts: Vec<Host> = self.book().all().await?.into_iter().map(|record| record.host).collect();
            let hosts: Vec<Host> = hosts.into_iter().filter(|host| !host.is_local()).collect();
            let mut report = ReconcileReport::default();
            if hosts.is_empty() {
                return Ok(report);
            }
            for (_, settled) in self.settle_remote().await? {
                match settled {
                    Ok((id, before, settled)) => report.note(id, before, &settled),
                    Err(problem) => report.problems.push(problem),
                }
            }
            self.remove_orphans(&hosts, &mut report).await?;
            Ok(report)
        })
    }

    async fn reconcile_row(&self, stored: Stored, report: &mut ReconcileReport) {
        let (id, before) = (stored.record.id(), stored.record.state());
        match self.settle(stored).await {
            Ok(settled) => report.note(id, before, &settled),
            Err(error) => report.problems.push(format!("{id}: {error:?}")),
        }
    }

    /// What carries our tag but belongs to no living row. A row is written before anything is provisioned, so nothing
    /// that is being made right now is among them. What no row knows stays: another installation may have made it.
    async fn remove_orphans(&self, hosts: &[Host], report: &mut ReconcileReport) -> Result<()> {
        let (stale, pairs) = self.find_stale(hosts).await?;
        let living = self.inner.store.living().await?;
        for silent in stale.unanswered {
            // An engine that is not installed here and that nobody uses is no problem.
            let is_used = living.iter().any(|stored| stored.record.sandbox.extension == silent.extension);
            if silent.host == host::LOCAL && !is_used {
                continue;
            }
            report.problems.push(format!("{} on {}: {}", silent.extension, silent.host, silent.reason));
        }
        for mut orphan in stale.remains {
            if !orphan.known {
                continue;
            }
            self.remove(&mut orphan, &pairs).await;
            match orphan.problem {
                Some(problem) => {
                    report.problems.push(format!("{} on {}: {problem}", orphan.tag, orphan.host))
                }
                None if orphan.removed => report.removed.push(orphan.tag),
                None => {}
            }
        }
        Ok(())
    }

    /// Settles the living rows of hosts that are reached by SSH: hosts side by side, the rows of one after each other.
    /// A host that does not answer is not asked for its other rows.
    pub(crate) async fn settle_remote(&self) -> Result<Vec<(String, Settled)>> {
        let mut by_host: BTreeMap<String, Vec<Stored>> = BTreeMap::new();
        for stored in self.inner.store.living().await? {
            if stored.record.sandbox.host != host::LOCAL {
                by_host.entry(stored.record.sandbox.host.clone()).or_default().push(stored);
            }
        }
        let mut work = tokio::task::JoinSet::new();
        for (host, rows) in by_host {
            let engine = self.clone();
            work.spawn(async move { engine.settle_host(host, rows).await });
        }
        let mut out = Vec::new();
        while let Some(done) = work.join_next().await {
            match done {
                Ok(settled) => out.extend(settled),
                Err(error) => tracing::error!(%error, "a look at the rows of a host broke off"),
            }
        }
        Ok(out)
    }

    async fn settle_host(&self, host: String, rows: Vec<Stored>) -> Vec<(String, Settled)> {
        let mut out = Vec::new();
        for stored in rows {
            let (id, before) = (stored.record.id(), stored.record.state());
            let settled = self.settle(stored).await;
            let is_away = settled.as_ref().is_err_and(is_away);
            let told = match settled {
                Ok(settled) => Ok((id, before, settled)),
                Err(error) => Err(format!("{id} on {host}: {error:?}")),
            };
            out.push((host.clone(), told));
            if is_away {
                break;
            }
        }
        out
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

    /// Brings one row up to date with its backend, and judges anew when somebody changes it meanwhile.
    pub(crate) fn settle(&self, mut stored: Stored) -> Work<'_, Stored> {
        Box::pin(async move {
            for _ in 0..8 {
                let id = stored.record.id();
                match Box::pin(self.judge(stored)).await {
                    Err(error) if error.kind() == ErrorKind::Conflict => stored = self.reload(id).await?,
                    other => return other,
                }
            }
            Ok(stored)
        })
    }

    async fn judge(&self, stored: Stored) -> Result<Stored> {
        if self.is_being_worked_on(&stored) {
            return Ok(stored);
        }
        // A sign of life of whoever works on it leaves the version as it is, and a sweep may have read the row long ago.
        let stored = if stored.lease.is_some() { self.reload(stored.record.id()).await? } else { stored };
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
        if self.ask_life(&stored, handle).await?.is_alive() {
            self.note_alive(&stored, now).await;
            let stored = self.settle_hedge(stored).await;
            // Somebody was in the middle of something with it and is gone.
            return if stored.lease.is_some() { self.recover(stored).await } else { Ok(stored) };
        }
        // Gone before its time. With an idle limit that has had time to pass, that is what ended it.
        let since_ready = stored.record.sandbox.ready_at.unwrap_or(stored.record.sandbox.created_at);
        let idle_ended = stored.record.sandbox.idle_reap.is_some_and(|idle| idle.after(since_ready) <= now);
        if idle_ended {
            return self.end(stored, Ending::expired(reason::IDLE)).await;
        }
        let error = Error::new(ErrorKind::BackendFailed, "the sandbox ended before its time")
            .with_hint(self.why_lost(&stored.record.sandbox.extension));
        self.end(stored, Ending::failed(reason::LOST, &error)).await
    }

    /// What may have ended it, where it was.
    fn why_lost(&self, extension: &str) -> &'static str {
        match self.inner.registry.get(extension).map(|found| found.describe().capability) {
            Ok(capability) if !capability.self_hosted => {
                "the provider does not have it any more; its console or its status page may say why"
            }
            _ => "what it ran in was stopped or killed, or the machine restarted",
        }
    }
}

/// The host did not answer, or not as itself. A failed cleanup says so one level down.
fn is_away(error: &Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        let kind = error.downcast_ref::<Error>().map(Error::kind);
        if matches!(kind, Some(ErrorKind::Unreachable | ErrorKind::HostKeyRefused | ErrorKind::Timeout)) {
            return true;
        }
        next = error.source();
    }
    false
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
