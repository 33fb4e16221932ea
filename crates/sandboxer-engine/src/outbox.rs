//! Delivering events: at least once, in order per sandbox, with back-off. Nobody who creates ever waits for a sink.

mod state_hub;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandboxer_core::event::Event;
use sandboxer_core::{Dur, Result};
use sandboxer_store::Delivery;
use tokio_util::sync::CancellationToken;

use crate::Engine;

pub use state_hub::{STATE_HUB_SINK, StateHub};

/// Where events go.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// The name under which deliveries are queued.
    fn name(&self) -> &str;
    /// Returns when the sink has the event. Called again with the same event after any error.
    async fn deliver(&self, event: &Event) -> Result<()>;
}

/// Deliveries under way at once, each for another sandbox.
const BATCH: u32 = 32;
/// A claim outlives the slowest delivery, so that nobody else sends the same event meanwhile.
const CLAIM: Dur = Dur::from_secs(60);
const IDLE: Duration = Duration::from_millis(250);
const FIRST_BACKOFF: Dur = Dur::from_millis(500);
const LONGEST_BACKOFF: Dur = Dur::from_secs(600);

impl Engine {
    /// Delivers what is due until cancelled.
    pub(crate) async fn deliver_until(&self, cancel: CancellationToken) {
        let sinks = self.inner.sinks.iter().map(|sink| self.drain_forever(sink.clone(), cancel.clone()));
        let tasks: Vec<_> = sinks.map(tokio::spawn).collect();
        for task in tasks {
            let _ = task.await;
        }
    }

    fn drain_forever(
        &self,
        sink: Arc<dyn Sink>,
        cancel: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let engine = self.clone();
        async move {
            while !cancel.is_cancelled() {
                let delivered = match engine.deliver_due(&sink).await {
                    Ok(count) => count,
                    Err(error) => {
                        tracing::warn!(error = ?error, sink = sink.name(), "the outbox cannot be read");
                        0
                    }
                };
                if delivered == 0 {
                    tokio::select! {
                        () = cancel.cancelled() => return,
                        () = tokio::time::sleep(IDLE) => {}
                    }
                }
            }
        }
    }

    /// Delivers until nothing is due any more or `patience` is over; for a command line without a server.
    pub async fn deliver_for(&self, patience: Duration) -> Result<()> {
        let work = async {
            for sink in &self.inner.sinks {
                while self.deliver_due(sink).await? > 0 {}
            }
            Ok(())
        };
        tokio::time::timeout(patience, work).await.unwrap_or(Ok(()))
    }

    /// One round: the oldest due event of each of some sandboxes. Returns how many were tried.
    async fn deliver_due(&self, sink: &Arc<dyn Sink>) -> Result<usize> {
        let (owner, now) = (self.inner.owner.as_str(), self.now());
        let claimed = self.inner.store.outbox_claim(sink.name(), owner, now, CLAIM.after(now), BATCH).await?;
        let count = claimed.len();
        let tasks: Vec<_> = claimed
            .into_iter()
            .map(|delivery| {
                let (engine, sink) = (self.clone(), sink.clone());
                tokio::spawn(async move { engine.deliver_one(&sink, delivery).await })
            })
            .collect();
        for task in tasks {
            if let Ok(Err(error)) = task.await {
                tracing::warn!(error = ?error, sink = sink.name(), "a delivery could not be recorded");
            }
        }
        Ok(count)
    }

    async fn deliver_one(&self, sink: &Arc<dyn Sink>, delivery: Delivery) -> Result<()> {
        match sink.deliver(&delivery.event).await {
            Ok(()) => self.inner.store.outbox_done(delivery.id).await,
            Err(error) => {
                tracing::debug!(error = ?error, event = %delivery.event.id, "a delivery failed and will be tried again");
                let next_at = backoff(delivery.attempts).after(self.now());
                self.inner.store.outbox_retry(delivery.id, next_at, &error.chain().join(": ")).await
            }
        }
    }
}

/// Doubles from half a second to ten minutes.
fn backoff(attempts: u32) -> Dur {
    let grown = FIRST_BACKOFF.as_millis().saturating_mul(1_u64 << attempts.min(20));
    Dur::from_millis(grown.min(LONGEST_BACKOFF.as_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_grows_and_is_bounded() {
        assert_eq!(backoff(0), FIRST_BACKOFF);
        assert!(backoff(3) > backoff(2));
        assert_eq!(backoff(u32::MAX), LONGEST_BACKOFF);
    }
}
