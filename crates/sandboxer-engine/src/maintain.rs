//! What a server does by itself: end what is over, look after what lives, deliver, forget.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::snapshots::Where;

/// How soon after its deadline a sandbox's row follows; the sandbox itself ends on time by its supervisor.
const OVERDUE_EVERY: Duration = Duration::from_millis(500);
/// How often living rows are compared with their backends and failed cleanups are tried again.
const REFRESH_EVERY: Duration = Duration::from_secs(15);
/// The same for hosts that are reached by SSH, by themselves so that one that does not answer holds up nobody else.
const REMOTE_EVERY: Duration = Duration::from_secs(30);
/// How often mirrors that are about to end are looked for.
const MIRRORS_EVERY: Duration = Duration::from_secs(1);
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);

impl Engine {
    /// Runs until cancelled. Every loop logs its own failures and goes on.
    pub async fn maintain(&self, cancel: CancellationToken) {
        let overdue = self.every(OVERDUE_EVERY, &cancel, || self.end_overdue());
        let refresh = self.every(REFRESH_EVERY, &cancel, || self.refresh());
        let remote = self.every(REMOTE_EVERY, &cancel, || self.refresh_remote());
        let mirrors = self.every(MIRRORS_EVERY, &cancel, || self.sync_before_expiry());
        let prune = self.every(PRUNE_EVERY, &cancel, || self.prune());
        tokio::join!(overdue, refresh, remote, mirrors, prune, self.deliver_until(cancel.clone()));
    }

    async fn every<F, W>(&self, period: Duration, cancel: &CancellationToken, work: F)
    where
        F: Fn() -> W,
        W: Future<Output = sandboxer_core::Result<()>>,
    {
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(period) => {}
            }
            if let Err(error) = work().await {
                tracing::warn!(error = ?error, "maintenance failed and will be tried again");
            }
        }
    }

    async fn end_overdue(&self) -> sandboxer_core::Result<()> {
        for stored in self.inner.store.overdue(self.now()).await? {
            if stored.record.sandbox.host != sandboxer_core::host::LOCAL {
                continue;
            }
            let id = stored.record.id();
            // One that cannot be ended now holds up no other.
            if let Err(error) = self.settle_if_needed(stored).await {
                tracing::warn!(error = ?error, sandbox = %id, "an overdue sandbox could not be ended");
            }
        }
        Ok(())
    }

    async fn refresh_remote(&self) -> sandboxer_core::Result<()> {
        for (host, settled) in self.settle_remote().await? {
            if let Err(problem) = settled {
                tracing::warn!(host, problem, "a sandbox could not be brought up to date");
            }
        }
        self.settle_snapshots(Where::Elsewhere).await
    }

    async fn prune(&self) -> sandboxer_core::Result<()> {
        let keep = i64::try_from(self.inner.limits.retention.as_millis()).unwrap_or(i64::MAX);
        let before = jiff::Timestamp::from_millisecond(self.now().as_millisecond().saturating_sub(keep));
        let before = before.unwrap_or(jiff::Timestamp::MIN);
        let gone = self.inner.store.prune(before).await?;
        self.inner.store.route_forget(before).await?;
        if gone > 0 {
            tracing::info!(sandboxes = gone, "forgot sandboxes that ended long ago");
        }
        Ok(())
    }
}
