//! Events: written with the change that they tell of, read in the order of all.

use rusqlite::{Connection, Row};
use sandboxer_core::event::NewEvent;
use sandboxer_core::page::Limit;
use sandboxer_core::sandbox::SandboxRecord;
use sandboxer_core::{Error, ErrorKind, EventId, SandboxId};

use super::fault::Attempt;
use super::query::query;
use super::rows::{count, micros};
use crate::model::{EventFilter, PlacedEvent};

pub(super) const ALL: &str = "SELECT position, json FROM events WHERE position > ? ORDER BY position LIMIT ?";
/// By sequence, which is the index's order and grows with the position.
pub(super) const OF_SUBJECT: &str =
    "SELECT position, json FROM events WHERE subject = ? AND position > ? ORDER BY sequence LIMIT ?";
pub(super) const OF_OWNER: &str = "SELECT position, json FROM events INDEXED BY events_owner \
                        WHERE owner_key = ? AND position > ? ORDER BY position LIMIT ?";
pub(super) const OF_SUBJECT_AND_OWNER: &str = "SELECT position, json FROM events INDEXED BY events_subject \
                                    WHERE subject = ? AND owner_key = ? AND position > ? ORDER BY sequence LIMIT ?";
pub(super) const POSITION: &str = "SELECT position FROM events WHERE id = ?";
const WRITE: &str =
    "INSERT INTO events (id, subject, sequence, time, owner_key, json) VALUES (?, ?, ?, ?, ?, ?)";
const COUNT_ON: &str =
    "UPDATE sandboxes SET last_sequence = last_sequence + ? WHERE id = ? RETURNING last_sequence, owner_key";
/// From SQLite's own counter, which stays when the newest events were pruned.
const LAST: &str = "SELECT seq FROM sqlite_sequence WHERE name = 'events'";

/// Turns facts into events of this process. A trigger queues them for whoever wants them.
#[derive(Debug)]
pub(super) struct Journal {
    source: String,
}

impl Journal {
    pub(super) fn new(source: String) -> Self {
        Self { source }
    }

    /// Writes events with the sequences after `last`.
    pub(super) fn record(
        &self,
        connection: &Connection,
        record: &SandboxRecord,
        last: u64,
        events: impl IntoIterator<Item = NewEvent>,
    ) -> Attempt<()> {
        self.write(connection, record.id(), &record.owner_key, last, events)
    }

    /// Writes facts about a sandbox that stays as it is. Its version does too.
    pub(super) fn facts(&self, connection: &Connection, id: SandboxId, facts: Vec<NewEvent>) -> Attempt<()> {
        let counted = query(COUNT_ON)
            .bind(facts.len() as i64)
            .bind(id.to_string())
            .first(connection, |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))?;
        let (last, owner_key) = counted
            .ok_or_else(|| Error::new(ErrorKind::SandboxNotFound, format!("there is no sandbox `{id}`")))?;
        self.write(connection, id, &owner_key, count(last - facts.len() as i64)?, facts)
    }

    fn write(
        &self,
        connection: &Connection,
        id: SandboxId,
        owner_key: &Option<String>,
        last: u64,
        events: impl IntoIterator<Item = NewEvent>,
    ) -> Attempt<()> {
        let subject = id.to_string();
        for (sequence, event) in (last + 1..).zip(events) {
            let event = event.into_event(&self.source, id, sequence);
            query(WRITE)
                .bind(event.id.to_string())
                .bind(&subject)
                .bind(sequence as i64)
                .bind(micros(event.time))
                .bind(owner_key)
                .bind(serde_json::to_string(&event)?)
                .run(connection)?;
        }
        Ok(())
    }
}

pub(super) fn facts(
    connection: &Connection,
    journal: &Journal,
    id: SandboxId,
    facts: Vec<NewEvent>,
) -> Attempt<()> {
    journal.facts(connection, id, facts)
}

pub(super) fn after(
    connection: &Connection,
    filter: &EventFilter,
    after: i64,
    limit: Limit,
) -> Attempt<Vec<PlacedEvent>> {
    let subject = filter.subject.map(|id| id.to_string());
    let query = match (&subject, &filter.owner_key) {
        (None, None) => query(ALL),
        (Some(subject), None) => query(OF_SUBJECT).bind(subject),
        (None, Some(owner)) => query(OF_OWNER).bind(owner),
        (Some(subject), Some(owner)) => query(OF_SUBJECT_AND_OWNER).bind(subject).bind(owner),
    };
    query.bind(after).bind(limit.get()).all(connection, placed)
}

fn placed(row: &Row<'_>) -> Attempt<PlacedEvent> {
    Ok(PlacedEvent { position: row.get(0)?, event: serde_json::from_str(row.get_ref(1)?.as_str()?)? })
}

pub(super) fn position(connection: &Connection, id: EventId) -> Attempt<Option<i64>> {
    query(POSITION).bind(id.to_string()).first(connection, |row| Ok(row.get(0)?))
}

pub(super) fn last_position(connection: &Connection) -> Attempt<i64> {
    Ok(query(LAST).first(connection, |row| Ok(row.get(0)?))?.unwrap_or(0))
}
