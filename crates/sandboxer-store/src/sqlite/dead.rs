//! Dead letters, and queueing again what was delivered or given up.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, Row};
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::{Error, ErrorKind, EventId};

use super::fault::Attempt;
use super::outbox::{self, shortened};
use super::query::query;
use super::rows::{count, micros, moment};
use crate::outgoing::{DeadLetter, DeadLetterFilter, Outlet, SinkStats};

/// What a cursor starts with; the rest is the last number of its page.
const CURSOR: &str = "d";
/// Events looked at in one transaction of a replay.
const BITE: i64 = 500;
/// Between two of them.
pub(super) const REPLAY_PAUSE: Duration = Duration::from_millis(2);

/// A listing: what follows `FROM dead_letters d`, before and after the event is found.
macro_rules! select_dead {
    ($from:literal, $rest:literal) => {
        concat!(
            "SELECT d.id, d.sink, e.id, json_extract(e.json, '$.type'), d.subject, e.sequence, \
             d.attempts, d.queued_at, d.died_at, d.reason FROM dead_letters d ",
            $from,
            " CROSS JOIN events e ON e.position = d.position ",
            $rest
        )
    };
}

/// Gives up on the deliveries that a condition names.
macro_rules! bury {
    ($condition:literal) => {
        concat!(
            "INSERT INTO dead_letters (id, sink, subject, position, attempts, queued_at, died_at, reason) \
             SELECT id, sink, subject, position, attempts, created_at, ?1, ?2 FROM outbox WHERE ",
            $condition
        )
    };
}

pub(super) const LIST_ALL: &str = select_dead!("", "WHERE d.id < ? ORDER BY d.id DESC LIMIT ?");
const FIND: &str = select_dead!("", "WHERE d.id = ?");
pub(super) const LIST_SINK: &str =
    select_dead!("INDEXED BY dead_letters_sink", "WHERE d.sink = ? AND d.id < ? ORDER BY d.id DESC LIMIT ?");
/// Events of a span of positions, queued behind what is there. One that is queued already stays where it is.
const AGAIN: &str = "INSERT INTO outbox (sink, subject, position, head, next_at, created_at) \
    SELECT ?1, e.subject, e.position, \
           row_number() OVER (PARTITION BY e.subject ORDER BY e.position) = 1 \
           AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.subject = e.subject AND o.sink = ?1), ?2, ?2 \
    FROM events e WHERE e.position BETWEEN ?3 AND ?4 AND e.time >= ?5 \
    AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.position = e.position AND o.sink = ?1) \
    AND EXISTS (SELECT 1 FROM json_each(?6) p \
                WHERE json_extract(e.json, '$.type') GLOB 'dev.sandboxer.' || p.value) \
    ORDER BY e.position";

/// Gives up on one delivery and lets the next of its sandbox go.
pub(super) fn bury(connection: &Connection, id: i64, reason: &str, now: Timestamp) -> Attempt<()> {
    query(bury!("id = ?3")).bind(micros(now)).bind(shortened(reason)).bind(id).run(connection)?;
    outbox::take_out(connection, id)?;
    Ok(())
}

/// Gives up on everything that is queued for a sink.
pub(super) fn bury_all(connection: &Connection, sink: &str, reason: &str, now: Timestamp) -> Attempt<u64> {
    let done =
        query(bury!("sink = ?3")).bind(micros(now)).bind(shortened(reason)).bind(sink).run(connection)?;
    query("DELETE FROM outbox WHERE sink = ?").bind(sink).run(connection)?;
    Ok(done as u64)
}

pub(super) fn list(
    connection: &Connection,
    filter: &DeadLetterFilter,
    cursor: Option<&str>,
    limit: Limit,
) -> Attempt<Page<DeadLetter>> {
    let before = cursor.map(read_cursor).transpose()?.unwrap_or(i64::MAX);
    let query = match &filter.sink {
        None => query(LIST_ALL),
        Some(sink) => query(LIST_SINK).bind(sink),
    };
    // One more than asked tells whether there is another page.
    let mut items = query.bind(before).bind(limit.get() + 1).all(connection, letter)?;
    let more = items.len() > limit.get() as usize;
    items.truncate(limit.get() as usize);
    let next_cursor = items.last().filter(|_| more).map(|last| format!("{CURSOR}{}", last.delivery_id));
    Ok(Page { items, next_cursor })
}

pub(super) fn find(connection: &Connection, id: i64) -> Attempt<Option<DeadLetter>> {
    query(FIND).bind(id).first(connection, letter)
}

fn letter(row: &Row<'_>) -> Attempt<DeadLetter> {
    Ok(DeadLetter {
        delivery_id: row.get(0)?,
        sink: row.get(1)?,
        event_id: row.get_ref(2)?.as_str()?.parse()?,
        kind: row.get(3)?,
        subject: row.get_ref(4)?.as_str()?.parse()?,
        sequence: count(row.get(5)?)?,
        attempts: row.get(6)?,
        queued_at: moment(row.get(7)?)?,
        died_at: moment(row.get(8)?)?,
        reason: row.get(9)?,
    })
}

fn read_cursor(text: &str) -> Result<i64, Error> {
    let place = text.strip_prefix(CURSOR).and_then(|rest| rest.parse().ok());
    place.ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, "this cursor is not one of ours")
            .with_hint("pass `next_cursor` of the page before as it is, or no cursor for the first page")
    })
}

pub(super) fn stats(connection: &Connection) -> Attempt<Vec<SinkStats>> {
    query(
        "SELECT sink, sum(pending), sum(dead) FROM ( \
           SELECT sink, count(*) AS pending, 0 AS dead FROM outbox GROUP BY sink \
           UNION ALL SELECT sink, 0, count(*) FROM dead_letters GROUP BY sink \
           UNION ALL SELECT id, 0, 0 FROM webhooks UNION ALL SELECT sink, 0, 0 FROM hubs) GROUP BY sink ORDER BY sink",
    )
    .all(connection, |row| {
        Ok(SinkStats { sink: row.get(0)?, pending: count(row.get(1)?)?, dead: count(row.get(2)?)? })
    })
}

/// Puts a dead letter back at the end of its queue, with all its tries.
pub(super) fn replay(connection: &Connection, id: i64, now: Timestamp) -> Attempt<bool> {
    let found = query("SELECT sink, position FROM dead_letters WHERE id = ?")
        .bind(id)
        .first(connection, |row| Ok((Outlet::from(row.get_ref(0)?.as_str()?), row.get(1)?)))?;
    let Some((outlet, position)) = found else { return Ok(false) };
    again(connection, &outlet, Timestamp::MIN, (position, position), now)?;
    Ok(true)
}

pub(super) fn replay_event(
    connection: &Connection,
    event: EventId,
    outlets: &[Outlet],
    now: Timestamp,
) -> Attempt<u64> {
    let position = super::events::position(connection, event)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("event {event} is not known any more"))
            .with_hint("old events are forgotten with their sandboxes")
    })?;
    let mut queued = 0;
    for outlet in outlets {
        queued += again(connection, outlet, Timestamp::MIN, (position, position), now)?;
    }
    Ok(queued)
}

/// The place of the first event since a moment. Not in a write: it may read all of them.
pub(super) fn first_since(connection: &Connection, since: Timestamp) -> Attempt<Option<Place>> {
    let span: (Option<i64>, Option<i64>) =
        query("SELECT min(position), max(position) FROM events WHERE time >= ?")
            .bind(micros(since))
            .one(connection, |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(span.0.zip(span.1).map(|(next, last)| Place { next, last }))
}

/// How far a replay has come, and where it ends: what happens meanwhile is queued anyway.
#[derive(Clone, Copy)]
pub(super) struct Place {
    next: i64,
    last: i64,
}

pub(super) struct Bite {
    pub(super) queued: u64,
    /// Where to go on; absent at the end.
    pub(super) next: Option<Place>,
}

pub(super) fn replay_bite(
    connection: &Connection,
    outlet: &Outlet,
    since: Timestamp,
    place: Place,
    now: Timestamp,
) -> Attempt<Bite> {
    let end = place.last.min(place.next + BITE - 1);
    let queued = again(connection, outlet, since, (place.next, end), now)?;
    let next = (end < place.last).then_some(Place { next: end + 1, ..place });
    Ok(Bite { queued, next })
}

/// Queues the events of a span of positions again. What is queued is no dead letter any more.
fn again(
    connection: &Connection,
    outlet: &Outlet,
    since: Timestamp,
    (first, last): (i64, i64),
    now: Timestamp,
) -> Attempt<u64> {
    let done = query(AGAIN)
        .bind(&outlet.name)
        .bind(micros(now))
        .bind(first)
        .bind(last)
        .bind(micros(since))
        .bind(serde_json::to_string(&outlet.patterns)?)
        .run(connection)?;
    query(
        "DELETE FROM dead_letters WHERE sink = ?1 AND position BETWEEN ?2 AND ?3 \
         AND EXISTS (SELECT 1 FROM outbox o WHERE o.position = dead_letters.position AND o.sink = ?1)",
    )
    .bind(&outlet.name)
    .bind(first)
    .bind(last)
    .run(connection)?;
    Ok(done as u64)
}
