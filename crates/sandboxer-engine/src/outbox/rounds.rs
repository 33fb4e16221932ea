//! The rounds of delivery: who is due, one try each, and what becomes of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sandboxer_core::{Dur, Result, WebhookId};
use sandboxer_store::{Delivery, Disabled};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::webhook::Webhook;
use super::{Sink, Undelivered};
use crate::Engine;
use crate::owner::Owner;

/// Deliveries under way at once to one sink, each for another sandbox.
const BATCH: u32 = 32;
/// A claim outlives the slowest delivery, so that nobody else sends the same event meanwhile.
const CLAIM: Dur = Dur::from_secs(60);
const IDLE: Duration = Duration::from_millis(250);
/// How often claims of processes that were killed are looked for.
const RELEASE_EVERY: Duration = Duration::from_secs(5);
/// How often this process says that it has hubs.
const TELL_EVERY: Duration = Duration::from_secs(30);

/// What a round did.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    tried: usize,
    /// The sink asked to be left alone for a while. The store keeps until when, for everybody.
    paused: bool,
}

impl Engine {
    /// Delivers what is due until cancelled.
    pub(crate) async fn deliver_until(&self, cancel: CancellationToken) {
        let sinks = self.inner.sinks.iter().map(|sink| self.drain_forever(sink.clone(), cancel.clone()));
        let tasks: Vec<_> = sinks.map(tokio::spawn).collect();
        tokio::join!(
            self.deliver_webhooks_until(&cancel),
            self.release_until(&cancel),
            self.tell_hubs_until(&cancel)
        );
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
                let round = engine.deliver_due(&sink).await.unwrap_or_else(|error| {
                    tracing::warn!(error = ?error, sink = sink.name(), "the outbox cannot be read");
                    Round::default()
                });
                if round.tried == 0 {
                    tokio::select! {
                        () = cancel.cancelled() => return,
                        () = tokio::time::sleep(IDLE) => {}
                    }
                }
            }
        }
    }

    /// Webhooks come and go while we run, so who is due is asked anew each time. Each has a task of its own.
    async fn deliver_webhooks_until(&self, cancel: &CancellationToken) {
        let mut tasks = JoinSet::new();
        let mut busy: HashMap<WebhookId, tokio::task::AbortHandle> = HashMap::new();
        loop {
            while tasks.try_join_next().is_some() {}
            busy.retain(|_, task| !task.is_finished());
            match self.inner.store.webhooks_due(self.now()).await {
                Ok(due) => {
                    for id in due.into_iter().map(|webhook| webhook.id) {
                        busy.entry(id).or_insert_with(|| {
                            let engine = self.clone();
                            tasks.spawn(async move { engine.drain_webhook(id).await })
                        });
                    }
                }
                Err(error) => tracing::warn!(error = ?error, "the webhooks cannot be read"),
            }
            // What is cut off here is tried again by whoever delivers next.
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(IDLE) => {}
            }
        }
    }

    /// Delivers to one webhook until nothing is due or it wants to be left alone.
    async fn drain_webhook(&self, id: WebhookId) {
        loop {
            // Read anew: it may have been changed, disabled or removed since the last round.
            let round = match self.inner.store.webhook_get(id).await {
                Ok(Some(record)) if record.disabled.is_none() => {
                    let sink: Arc<dyn Sink> = Arc::new(Webhook::new(self, record));
                    self.deliver_due(&sink).await
                }
                Ok(_) => return,
                Err(error) => Err(error),
            };
            match round {
                Ok(round) if round.tried > 0 && !round.paused => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(error = ?error, webhook = %id, "the outbox cannot be read");
                    return;
                }
            }
        }
    }

    /// Nobody may forget a hub while this process delivers to it.
    async fn tell_hubs_until(&self, cancel: &CancellationToken) {
        loop {
            if let Err(error) = self.inner.store.hubs_told(self.now()).await {
                tracing::warn!(error = ?error, "the store does not know that this process has hubs");
            }
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(TELL_EVERY) => {}
            }
        }
    }

    async fn release_until(&self, cancel: &CancellationToken) {
        loop {
            if let Err(error) = self.release_claims().await {
                tracing::warn!(error = ?error, "claims of dead processes cannot be ended");
            }
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(RELEASE_EVERY) => {}
            }
        }
    }

    /// A claim of a process that was killed ends at once and not after its time.
    async fn release_claims(&self) -> Result<()> {
        for owner in self.inner.store.outbox_claimers().await? {
            if Owner::is_gone(&owner) {
                self.inner.store.outbox_release(&owner, self.now()).await?;
            }
        }
        Ok(())
    }

    /// Delivers until nothing is due any more or `patience` is over; for a command line without a server.
    pub async fn deliver_for(&self, patience: Duration) -> Result<()> {
        let hubs = async {
            for sink in &self.inner.sinks {
                loop {
                    let round = self.deliver_due(sink).await?;
                    if round.tried == 0 || round.paused {
                        break;
                    }
                }
            }
            Ok(())
        };
        let webhooks = async {
            let due = self.inner.store.webhooks_due(self.now()).await?;
            let mut tasks = JoinSet::new();
            for webhook in due {
                let engine = self.clone();
                tasks.spawn(async move { engine.drain_webhook(webhook.id).await });
            }
            while tasks.join_next().await.is_some() {}
            Ok(())
        };
        let work = async {
            self.release_claims().await?;
            let (hubs, webhooks) = tokio::join!(hubs, webhooks);
            hubs.and(webhooks)
        };
        tokio::time::timeout(patience, work).await.unwrap_or(Ok(()))
    }

    /// One round: the oldest due event of each of some sandboxes.
    async fn deliver_due(&self, sink: &Arc<dyn Sink>) -> Result<Round> {
        let (owner, now) = (self.inner.owner.as_str(), self.now());
        let claimed = self.inner.store.outbox_claim(sink.name(), owner, now, CLAIM.after(now), BATCH).await?;
        let mut round = Round { tried: claimed.len(), paused: false };
        let mut tasks = JoinSet::new();
        for delivery in claimed {
            let (engine, sink) = (self.clone(), sink.clone());
            tasks.spawn(async move { engine.deliver_one(&sink, delivery).await });
        }
        while let Some(task) = tasks.join_next().await {
            match task {
                Ok(Ok(paused)) => round.paused |= paused,
                Ok(Err(error)) => {
                    tracing::warn!(error = ?error, sink = sink.name(), "a delivery could not be recorded");
                }
                Err(error) => tracing::error!(%error, sink = sink.name(), "a delivery broke off"),
            }
        }
        Ok(round)
    }

    /// Returns whether the sink wants to be left alone.
    async fn deliver_one(&self, sink: &Arc<dyn Sink>, delivery: Delivery) -> Result<bool> {
        match sink.deliver(&delivery.event).await {
            Ok(()) => self.inner.store.outbox_done(delivery.id).await.map(|()| false),
            Err(undelivered) => self.put_off(sink, &delivery, undelivered).await,
        }
    }

    async fn put_off(
        &self,
        sink: &Arc<dyn Sink>,
        delivery: &Delivery,
        undelivered: Undelivered,
    ) -> Result<bool> {
        let now = self.now();
        let why = undelivered.error.chain().join(": ");
        if let Some(id) = sink.name().parse::<WebhookId>().ok().filter(|_| undelivered.gone) {
            let buried =
                self.inner.store.webhook_disable(id, &Disabled { at: now, reason: why.clone() }).await?;
            tracing::warn!(webhook = %id, dead = buried, "a webhook is gone and was disabled: {why}");
            return Ok(false);
        }
        let tries = delivery.attempts.saturating_add(1);
        let age = now.as_millisecond().saturating_sub(delivery.queued_at.as_millisecond());
        let age = Dur::from_millis(u64::try_from(age).unwrap_or(0));
        let Some(wait) = sink.schedule().next(delivery.id, tries, age, undelivered.retry_after) else {
            let event = &delivery.event.id;
            tracing::warn!(%event, sink = sink.name(), tries, "a delivery is given up: {why}");
            return self.inner.store.outbox_bury(delivery.id, &why, now).await.map(|()| false);
        };
        tracing::debug!(event = %delivery.event.id, sink = sink.name(), "a delivery failed and will be tried again: {why}");
        self.inner.store.outbox_retry(delivery.id, wait.after(now), &why).await?;
        let Some(asked) = undelivered.retry_after else { return Ok(false) };
        self.inner.store.outbox_pause(sink.name(), asked.min(wait).after(now)).await?;
        Ok(true)
    }
}
