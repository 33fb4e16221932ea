//! Events: written with the change that they tell of, read in the order of all.

use sandboxer_core::event::NewEvent;
use sandboxer_core::page::Limit;
use sandboxer_core::sandbox::SandboxRecord;
use sandboxer_core::{Error, ErrorKind, EventId, SandboxId};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection as _, QueryBuilder, Row as _};

use super::fault::{Attempt, Fault};
use super::outbox;
use super::rows::{count, micros};
use crate::model::{EventFilter, PlacedEvent};
use crate::outgoing::Outlet;

pub(super) const ALL: &str = "SELECT position, json FROM events WHERE position > ? ORDER BY position LIMIT ?";
/// By sequence, which is the index's order and grows with the position.
pub(super) const OF_SUBJECT: &str =
    "SELECT position, json FROM events WHERE subject = ? AND position > ? ORDER BY sequence LIMIT ?";
pub(super) const OF_OWNER: &str = "SELECT position, json FROM events INDEXED BY events_owner \
                        WHERE owner_key = ? AND position > ? ORDER BY position LIMIT ?";
pub(super) const OF_SUBJECT_AND_OWNER: &str = "SELECT position, json FROM events INDEXED BY events_subject \
                                    WHERE subject = ? AND owner_key = ? AND position > ? ORDER BY sequence LIMIT ?";
pub(super) const POSITION: &str = "SELECT position FROM events WHERE id = ?";
const COUNT_ON: &str =
    "UPDATE sandboxes SET last_sequence = last_sequence + ? WHERE id = ? RETURNING last_sequence, owner_key";
/// From SQLite's own counter, which stays when the newest events were pruned.
const LAST: &str = "SELECT seq FROM sqlite_sequence WHERE name = 'events'";

/// Turns facts into events of this process, with their outbox rows.
#[derive(Debug)]
pub(super) struct Journal {
    source: String,
    /// As JSON, so that one statement serves any number; absent when there are none. The store's own webhooks are not
    /// among them: a trigger queues for those.
    sinks: Option<String>,
}

impl Journal {
    pub(super) fn new(source: String, sinks: &[Outlet]) -> Self {
        Self { source, sinks: (!sinks.is_empty()).then(|| outbox::outlets(sinks)) }
    }

    /// Writes events with the sequences after `last`.
    pub(super) async fn record(
        &self,
        connection: &mut SqliteConnection,
        record: &SandboxRecord,
        last: u64,
        events: impl IntoIterator<Item = NewEvent>,
    ) -> Attempt<()> {
        self.write(connection, record.id(), &record.owner_key, last, events).await
    }

    /// Writes facts about a sandbox that stays as it is. Its version does too.
    pub(super) async fn facts(
        &self,
        connection: &mut SqliteConnection,
        id: SandboxId,
        facts: Vec<NewEvent>,
    ) -> Attempt<()> {
        let row = sqlx::query(COUNT_ON).bind(facts.len() as i64).bind(id.to_string());
        let row = row
            .fetch_optional(&mut *connection)
            .await?
            .ok_or_else(|| Error::new(ErrorKind::SandboxNotFound, format!("there is no sandbox `{id}`")))?;
        let last = count(row.try_get::<i64, _>(0)? - facts.len() as i64)?;
        self.write(connection, id, &row.try_get(1)?, last, facts).await
    }

    async fn write(
        &self,
        connection: &mut SqliteConnection,
        id: SandboxId,
        owner_key: &Option<String>,
        last: u64,
        events: impl IntoIterator<Item = NewEvent>,
    ) -> Attempt<()> {
        let subject = id.to_string();
        let mut rows = Vec::new();
        for (sequence, event) in (last + 1..).zip(events) {
            let event = event.into_event(&self.source, id, sequence);
            rows.push((
                event.id.to_string(),
                sequence as i64,
                micros(event.time),
                serde_json::to_string(&event)?,
            ));
        }
        if rows.is_empty() {
            return Ok(());
        }
        // One statement for all: each one is a round trip to the connection's thread.
        let mut query =
            QueryBuilder::new("INSERT INTO events (id, subject, sequence, time, owner_key, json) ");
        query.push_values(rows, |mut row, (id, sequence, time, json)| {
            row.push_bind(id).push_bind(subject.clone()).push_bind(sequence).push_bind(time);
            row.push_bind(owner_key.clone()).push_bind(json);
        });
        query.build().execute(&mut *connection).await?;
        match &self.sinks {
            Some(sinks) => outbox::enqueue(connection, sinks, &subject, last as i64).await,
            None => Ok(()),
        }
    }
}

pub(super) async fn facts(
    connection: &mut SqliteConnection,
    journal: &Journal,
    id: SandboxId,
    facts: Vec<NewEvent>,
) -> Attempt<()> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    journal.facts(&mut tx, id, facts).await?;
    tx.commit().await?;
    Ok(())
}

pub(super) async fn after(
    connection: &mut SqliteConnection,
    filter: &EventFilter,
    after: i64,
    limit: Limit,
) -> Attempt<Vec<PlacedEvent>> {
    let subject = filter.subject.map(|id| id.to_string());
    let query = match (&subject, &filter.owner_key) {
        (None, None) => sqlx::query(ALL),
        (Some(subject), None) => sqlx::query(OF_SUBJECT).bind(subject),
        (None, Some(owner)) => sqlx::query(OF_OWNER).bind(owner),
        (Some(subject), Some(owner)) => sqlx::query(OF_SUBJECT_AND_OWNER).bind(subject).bind(owner),
    };
    query.bind(after).bind(limit.get()).fetch_all(connection).await?.iter().map(placed).collect()
}

fn placed(row: &SqliteRow) -> Attempt<PlacedEvent> {
    Ok(PlacedEvent { position: row.try_get(0)?, event: serde_json::from_str(row.try_get(1)?)? })
}

pub(super) async fn position(connection: &mut SqliteConnection, id: EventId) -> Attempt<Option<i64>> {
    let row = sqlx::query(POSITION).bind(id.to_string()).fetch_optional(connection).await?;
    row.map(|row| row.try_get(0)).transpose().map_err(Fault::from)
}

pub(super) async fn last_position(connection: &mut SqliteConnection) -> Attempt<i64> {
    let row = sqlx::query(LAST).fetch_optional(connection).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?.unwrap_or(0))
}
