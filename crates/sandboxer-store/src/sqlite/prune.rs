//! Forgetting what is long over, in bites small enough that nobody waits for them.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::Connection;

use super::fault::Attempt;
use super::query::query;
use super::rows::micros;

/// Sandboxes looked at in one transaction; with their events some milliseconds of work.
const BITE: i64 = 100;
/// Between two transactions.
pub(super) const PAUSE: Duration = Duration::from_millis(5);

pub(super) const OLD: &str = "SELECT id, destroyed_at, (EXISTS (SELECT 1 FROM outbox WHERE subject = s.id) \
    OR EXISTS (SELECT 1 FROM dead_letters WHERE subject = s.id) \
    OR EXISTS (SELECT 1 FROM snapshots WHERE sandbox_id = s.id) \
    OR EXISTS (SELECT 1 FROM holds WHERE sandbox_id = s.id AND settled_at IS NULL)) \
    FROM sandboxes s INDEXED BY sandboxes_destroyed \
    WHERE state = 'destroyed' AND (destroyed_at, id) > (?, ?) AND destroyed_at < ? \
    ORDER BY destroyed_at, id LIMIT ?";

/// How far a pruning has come. What it could not remove is passed by, not looked at again and again.
pub(super) struct Place {
    destroyed_at: i64,
    id: String,
}

impl Default for Place {
    fn default() -> Self {
        Self { destroyed_at: i64::MIN, id: String::new() }
    }
}

pub(super) struct Bite {
    pub(super) gone: u64,
    /// Where to go on; absent at the end.
    pub(super) next: Option<Place>,
}

/// Removes the next few sandboxes that were destroyed before the moment, of which everything is delivered, no
/// snapshot is kept and nothing is held. Their labels, events and idempotency keys go with them.
pub(super) fn bite(connection: &Connection, before: Timestamp, place: &Place) -> Attempt<Bite> {
    let (mut looked_at, mut next, mut delivered) = (0, None, Vec::new());
    query(OLD).bind(place.destroyed_at).bind(&place.id).bind(micros(before)).bind(BITE).each(
        connection,
        |row| {
            let id: String = row.get(0)?;
            if !row.get::<_, bool>(2)? {
                delivered.push(id.clone());
            }
            next = Some(Place { destroyed_at: row.get(1)?, id });
            looked_at += 1;
            Ok(())
        },
    )?;
    let gone = delivered.len() as u64;
    if gone > 0 {
        query("DELETE FROM sandboxes WHERE id IN (SELECT value FROM json_each(?))")
            .bind(serde_json::Value::from(delivered).to_string())
            .run(connection)?;
    }
    Ok(Bite { gone, next: next.filter(|_| looked_at == BITE) })
}

/// Removes a few old keys of requests other than creates. True when there may be more.
pub(super) fn idempotency_keys(connection: &Connection, before: Timestamp) -> Attempt<bool> {
    let done = query(
        "DELETE FROM idempotency WHERE rowid IN \
         (SELECT rowid FROM idempotency WHERE sandbox_id IS NULL AND created_at < ? LIMIT ?)",
    )
    .bind(micros(before))
    .bind(BITE)
    .run(connection)?;
    Ok(done as i64 == BITE)
}
