//! Dead letters, and sending again: what was given up, and what somebody took and lost.

use jiff::Timestamp;
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, EventId, Result, WebhookId};
use sandboxer_store::{DeadLetter, DeadLetterFilter, Outlet, SinkStats};
use serde::{Deserialize, Serialize};

use crate::caller::Action;
use crate::{Caller, Engine};

/// What is to be sent again: one dead letter, one event, all dead letters of a sink, or all its events since a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayRequest {
    /// The number of a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<i64>,
    /// An event, delivered or not; to every sink that wants it, or to the one in `sink`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
    /// `state-hub`, `fin-hub` or a webhook's id. Alone: all its dead letters, and what waits for it is due at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<String>,
    /// With `sink`: every event since then, delivered or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
}

impl Engine {
    /// What was given up, newest first.
    pub async fn dead_letters(
        &self,
        caller: &Caller,
        filter: &DeadLetterFilter,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<DeadLetter>> {
        caller.require(Action::ManageMoney)?;
        let page = self.inner.store.dead_letters(filter, cursor, limit).await?;
        // A name that nobody has is a slip of the hand and not good news.
        match &filter.sink {
            Some(sink) if page.items.is_empty() && !self.is_sink(sink).await? => Err(no_sink(sink)),
            _ => Ok(page),
        }
    }

    /// An endpoint or a hub that is there, enabled or not.
    async fn is_sink(&self, name: &str) -> Result<bool> {
        Ok(match name.parse::<WebhookId>() {
            Ok(id) => self.inner.store.webhook_get(id).await?.is_some(),
            Err(_) => self.inner.store.hubs().await?.iter().any(|hub| hub.name == name),
        })
    }

    /// What waits and what was given up, per sink.
    pub async fn sink_stats(&self) -> Result<Vec<SinkStats>> {
        self.inner.store.sink_stats().await
    }

    /// The same, for whoever may forget one.
    pub async fn sinks(&self, caller: &Caller) -> Result<Vec<SinkStats>> {
        caller.require(Action::ManageMoney)?;
        self.sink_stats().await
    }

    /// Queues nothing for a hub any more and forgets what waits for it. Returns how many deliveries that were.
    pub async fn forget_sink(&self, caller: &Caller, sink: &str) -> Result<u64> {
        caller.require(Action::ManageMoney)?;
        if sink.parse::<WebhookId>().is_ok() {
            return Err(Error::new(ErrorKind::InvalidInput, format!("{sink} is a webhook"))
                .with_hint(format!("`sandboxer webhooks remove {sink}` removes it")));
        }
        self.inner.store.hub_forget(sink, self.now()).await?.ok_or_else(|| no_sink(sink))
    }

    /// Queues events again, each behind what is pending for its sandbox and under the id that it had. What is queued
    /// already is not queued twice; for a sink that is named it is due at once. Returns how many deliveries become due.
    pub async fn replay_events(&self, caller: &Caller, request: &ReplayRequest) -> Result<u64> {
        caller.require(Action::ManageMoney)?;
        let now = self.now();
        match request {
            ReplayRequest { delivery_id: Some(id), event_id: None, sink: None, since: None } => {
                self.replay_dead(*id, now).await
            }
            ReplayRequest { delivery_id: None, event_id: Some(event), sink, since: None } => {
                let Some(sink) = sink else {
                    return self.inner.store.replay_event(*event, &self.outlets().await?, now).await;
                };
                let outlets = [self.outlet(sink).await?];
                let queued = self.inner.store.replay_event(*event, &outlets, now).await?;
                Ok(queued + self.inner.store.outbox_hurry(sink, now).await?)
            }
            ReplayRequest { delivery_id: None, event_id: None, sink: Some(sink), since: Some(since) } => {
                let outlet = self.outlet(sink).await?;
                let queued = self.inner.store.replay_since(&outlet, *since, now).await?;
                Ok(queued + self.inner.store.outbox_hurry(sink, now).await?)
            }
            ReplayRequest { delivery_id: None, event_id: None, sink: Some(sink), since: None } => {
                self.outlet(sink).await?;
                let queued = self.replay_all_dead(sink, now).await?;
                Ok(queued + self.inner.store.outbox_hurry(sink, now).await?)
            }
            _ => Err(Error::new(ErrorKind::InvalidInput, "it is not clear what is to be sent again")
                .with_hint(
                    "name one delivery, or one event with or without a sink, or a sink with or without since when",
                )),
        }
    }

    async fn replay_dead(&self, id: i64, now: Timestamp) -> Result<u64> {
        let missing = || {
            Error::new(ErrorKind::NotFound, format!("there is no dead letter {id}"))
                .with_hint("`sandboxer events dead` shows what is there")
        };
        let letter = self.inner.store.dead_letter(id).await?.ok_or_else(missing)?;
        self.outlet(&letter.sink).await?;
        if self.inner.store.replay_dead(id, now).await? { Ok(1) } else { Err(missing()) }
    }

    /// Everything that was given up for a sink, oldest first, as it was meant to arrive.
    async fn replay_all_dead(&self, sink: &str, now: Timestamp) -> Result<u64> {
        let filter = DeadLetterFilter { sink: Some(sink.to_owned()) };
        let (mut numbers, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let page =
                self.inner.store.dead_letters(&filter, cursor.as_deref(), Limit::new(Limit::MAX)?).await?;
            numbers.extend(page.items.iter().map(|letter| letter.delivery_id));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        let mut queued = 0;
        for number in numbers.into_iter().rev() {
            queued += u64::from(self.inner.store.replay_dead(number, now).await?);
        }
        Ok(queued)
    }

    /// Every sink that events of this store are queued for.
    async fn outlets(&self) -> Result<Vec<Outlet>> {
        let mut outlets = self.inner.store.hubs().await?;
        let webhooks = self.inner.store.webhook_list().await?;
        outlets.extend(webhooks.iter().filter(|webhook| webhook.disabled.is_none()).map(|it| it.outlet()));
        Ok(outlets)
    }

    /// The sink of a name, if anything can be delivered to it.
    async fn outlet(&self, sink: &str) -> Result<Outlet> {
        if let Ok(id) = sink.parse::<WebhookId>() {
            let webhook = self.webhook(id).await?;
            return match &webhook.disabled {
                None => Ok(webhook.outlet()),
                Some(disabled) => Err(Error::new(
                    ErrorKind::IllegalState,
                    format!("webhook {id} is disabled: {}", disabled.reason),
                )
                .with_hint(format!("`sandboxer webhooks enable {id}` first"))),
            };
        }
        let hub = self.inner.store.hubs().await?.into_iter().find(|outlet| outlet.name == sink);
        hub.ok_or_else(|| no_sink(sink))
    }
}

fn no_sink(sink: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no sink `{}`", printable(sink))).with_hint(
        "`sandboxer events sinks` shows what is there; a hub is known once a process was told its URL",
    )
}
