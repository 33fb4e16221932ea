//! Reading what happened, in order, with a place to go on from.

use std::time::Duration;

use sandboxer_core::page::Limit;
use sandboxer_core::{Error, ErrorKind, EventId, Result, SandboxId};
use sandboxer_store::{EventFilter, PlacedEvent};

use crate::{Caller, Engine};

/// How often the store is asked for events that other processes wrote.
const POLL: Duration = Duration::from_millis(100);

impl Engine {
    /// The position after which a reader that has seen `last` goes on; the beginning without one.
    pub async fn position_after(&self, last: Option<EventId>) -> Result<i64> {
        let Some(id) = last else { return Ok(0) };
        self.inner.store.event_position(id).await?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("event {id} is not known any more"))
                .with_hint("start again without it; old events are forgotten with their sandboxes")
        })
    }

    /// Events after a position that the caller may see.
    pub async fn events(
        &self,
        caller: &Caller,
        subject: Option<SandboxId>,
        after: i64,
        limit: Limit,
    ) -> Result<Vec<PlacedEvent>> {
        if let Some(id) = subject {
            self.load(caller, id).await?;
        }
        let filter = EventFilter { subject, owner_key: caller.visible_key() };
        self.inner.store.events(&filter, after, limit).await
    }

    /// Like [`Engine::events`], but waits up to `wait` for the first one.
    pub async fn next_events(
        &self,
        caller: &Caller,
        subject: Option<SandboxId>,
        after: i64,
        limit: Limit,
        wait: Duration,
    ) -> Result<Vec<PlacedEvent>> {
        let deadline = tokio::time::Instant::now() + wait;
        let mut seen = -1;
        loop {
            let last = self.inner.store.last_position().await?;
            if last != seen && last > after {
                let events = self.events(caller, subject, after, limit).await?;
                if !events.is_empty() {
                    return Ok(events);
                }
            }
            seen = last;
            if tokio::time::Instant::now() + POLL > deadline {
                return Ok(Vec::new());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// The position of the newest event.
    pub async fn last_position(&self) -> Result<i64> {
        self.inner.store.last_position().await
    }
}
