//! The outbox: what is still to be delivered, in order per sandbox and sink.
//!
//! Only the oldest row of a sandbox and sink is a `head` and can be claimed; delivering it makes the next one head.

use jiff::Timestamp;
use rusqlite::Connection;

use super::fault::Attempt;
use super::query::query;
use super::rows::{count, micros, moment};
use crate::model::{Delivery, OutboxStats};

/// An error's text is for people; a page of HTML from a proxy is not.
const LONGEST_ERROR: usize = 1_000;

pub(super) const IS_DUE: &str = "SELECT 1 FROM outbox WHERE sink = ?1 AND head = 1 AND next_at <= ?2 \
    AND NOT EXISTS (SELECT 1 FROM pauses WHERE sink = ?1 AND until > ?2) LIMIT 1";
pub(super) const DUE: &str = "SELECT o.id, o.attempts, e.json, o.created_at \
                   FROM outbox o INDEXED BY outbox_due CROSS JOIN events e ON e.position = o.position \
                   WHERE o.sink = ? AND o.head = 1 AND o.next_at <= ? ORDER BY o.next_at, o.id LIMIT ?";
pub(super) const CLAIMERS: &str =
    "SELECT DISTINCT claimed_by FROM outbox INDEXED BY outbox_claims WHERE claimed_by IS NOT NULL";

pub(super) fn is_due(connection: &Connection, sink: &str, now: Timestamp) -> Attempt<bool> {
    query(IS_DUE).bind(sink).bind(micros(now)).any(connection)
}

pub(super) fn claim(
    connection: &Connection,
    sink: &str,
    owner: &str,
    now: Timestamp,
    until: Timestamp,
    max: u32,
) -> Attempt<Vec<Delivery>> {
    let out = query(DUE).bind(sink).bind(micros(now)).bind(max).all(connection, |row| {
        Ok(Delivery {
            id: row.get(0)?,
            sink: sink.to_owned(),
            attempts: row.get(1)?,
            event: serde_json::from_str(row.get_ref(2)?.as_str()?)?,
            queued_at: moment(row.get(3)?)?,
        })
    })?;
    let ids = serde_json::Value::from(out.iter().map(|delivery| delivery.id).collect::<Vec<_>>()).to_string();
    // Counted now and not at the answer: a delivery that kills its claimer is a try as well.
    query(
        "UPDATE outbox SET next_at = ?, claimed_by = ?, attempts = attempts + 1 \
         WHERE id IN (SELECT value FROM json_each(?))",
    )
    .bind(micros(until))
    .bind(owner)
    .bind(ids)
    .run(connection)?;
    Ok(out)
}

/// Delivered. Saying so twice is fine.
pub(super) fn done(connection: &Connection, id: i64) -> Attempt<()> {
    if !take_out(connection, id)? {
        // Its endpoint was disabled while this one was on its way.
        query("DELETE FROM dead_letters WHERE id = ?").bind(id).run(connection)?;
    }
    Ok(())
}

/// Takes a delivery from the queue and makes the next of its sandbox and sink the head. False when it was not there.
pub(super) fn take_out(connection: &Connection, id: i64) -> Attempt<bool> {
    let gone = query("DELETE FROM outbox WHERE id = ? RETURNING subject, sink")
        .bind(id)
        .first(connection, |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    let Some((subject, sink)) = gone else { return Ok(false) };
    query(
        "UPDATE outbox SET head = 1 WHERE id = (SELECT min(id) FROM outbox WHERE subject = ? AND sink = ?)",
    )
    .bind(subject)
    .bind(sink)
    .run(connection)?;
    Ok(true)
}

pub(super) fn claimers(connection: &Connection) -> Attempt<Vec<String>> {
    query(CLAIMERS).all(connection, |row| Ok(row.get(0)?))
}

/// Ends the claims of somebody who is no more.
pub(super) fn release(connection: &Connection, owner: &str, now: Timestamp) -> Attempt<u64> {
    let done = query(
        "UPDATE outbox SET next_at = min(next_at, ?), claimed_by = NULL WHERE claimed_by = ? AND head = 1",
    )
    .bind(micros(now))
    .bind(owner)
    .run(connection)?;
    Ok(done as u64)
}

/// Leaves a sink alone, whoever delivers.
pub(super) fn pause(connection: &Connection, sink: &str, until: Timestamp) -> Attempt<()> {
    query(
        "INSERT INTO pauses (sink, until) VALUES (?, ?) \
         ON CONFLICT (sink) DO UPDATE SET until = max(until, excluded.until)",
    )
    .bind(sink)
    .bind(micros(until))
    .run(connection)?;
    Ok(())
}

/// What waits for its next try is due now, and a pause is over.
pub(super) fn hurry(connection: &Connection, sink: &str, now: Timestamp) -> Attempt<u64> {
    let done = query(
        "UPDATE outbox SET next_at = ?1 WHERE sink = ?2 AND head = 1 AND next_at > ?1 AND claimed_by IS NULL",
    )
    .bind(micros(now))
    .bind(sink)
    .run(connection)?;
    query("DELETE FROM pauses WHERE sink = ?").bind(sink).run(connection)?;
    Ok(done as u64)
}

/// A text as it is kept.
pub(super) fn shortened(error: &str) -> String {
    error.chars().take(LONGEST_ERROR).collect()
}

pub(super) fn retry(connection: &Connection, id: i64, next_at: Timestamp, error: &str) -> Attempt<()> {
    query("UPDATE outbox SET next_at = ?, last_error = ?, claimed_by = NULL WHERE id = ?")
        .bind(micros(next_at))
        .bind(shortened(error))
        .bind(id)
        .run(connection)?;
    Ok(())
}

pub(super) fn stats(connection: &Connection, sink: &str) -> Attempt<OutboxStats> {
    query(
        "SELECT (SELECT count(*) FROM outbox WHERE sink = ?1), \
                (SELECT created_at FROM outbox WHERE sink = ?1 ORDER BY id LIMIT 1), \
                (SELECT last_error FROM outbox WHERE sink = ?1 AND head = 1 AND last_error IS NOT NULL \
                 ORDER BY next_at DESC LIMIT 1), \
                (SELECT min(next_at) FROM outbox WHERE sink = ?1 AND head = 1)",
    )
    .bind(sink)
    .one(connection, |row| {
        Ok(OutboxStats {
            pending: count(row.get(0)?)?,
            oldest: row.get::<_, Option<i64>>(1)?.map(moment).transpose()?,
            last_error: row.get(2)?,
            next_at: row.get::<_, Option<i64>>(3)?.map(moment).transpose()?,
        })
    })
}
