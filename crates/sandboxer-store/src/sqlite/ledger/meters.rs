//! Meters: intervals that begin, are seen alive, end, and are listed.

use std::collections::HashSet;

use jiff::Timestamp;
use rusqlite::{Connection, Row};
use sandboxer_core::extension::Usage;
use sandboxer_core::ledger::Meter;
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::sandbox::SandboxRecord;
use sandboxer_core::{Error, ErrorKind, SandboxId};
use serde_json::{Value, json};

use super::post::defect;
use crate::ledger::MeterFilter;
use crate::sqlite::fault::{Attempt, Fault};
use crate::sqlite::query::{Query, query};
use crate::sqlite::rows::{micros, moment};

/// What a cursor starts with; the rest is where its page ended.
const CURSOR: &str = "m1";

/// An interval is opened once and ended once, whoever repeats it.
const WRITE: &str = "INSERT INTO meters \
    (sandbox_id, meter, sequence, extension, owner_key, started_at, ended_at, alive_at, doc) \
    SELECT ?1, value ->> 0, value ->> 1, value ->> 2, ?2, value ->> 3, value ->> 4, value ->> 5, value -> 6 \
    FROM json_each(?3) WHERE true ON CONFLICT (sandbox_id, meter, sequence) DO UPDATE SET \
    ended_at = excluded.ended_at, alive_at = excluded.alive_at, doc = excluded.doc \
    WHERE meters.ended_at IS NULL AND excluded.ended_at IS NOT NULL";

pub(super) fn write(connection: &Connection, record: &SandboxRecord, meters: &[Meter]) -> Attempt<()> {
    let id = record.id();
    let mut seen = HashSet::new();
    for meter in meters {
        if meter.sandbox_id != id || !seen.insert((&meter.meter, meter.sequence)) {
            return Err(Fault::internal(format!(
                "interval {} of meter {} of {} does not belong to {id} or is there twice",
                meter.sequence, meter.meter, meter.sandbox_id
            )));
        }
    }
    // Ends come first: at a change of price one interval ends and the next one begins.
    let ended = meters.iter().filter(|meter| meter.ended_at.is_some());
    let opened = meters.iter().filter(|meter| meter.ended_at.is_none());
    let rows: Value = ended
        .chain(opened)
        .map(|meter| {
            json!([
                meter.meter,
                meter.sequence,
                meter.extension,
                micros(meter.started_at),
                meter.ended_at.map(micros),
                micros(meter.alive_at),
                meter
            ])
        })
        .collect();
    query(WRITE)
        .bind(id.to_string())
        .bind(&record.owner_key)
        .bind(rows.to_string())
        .run(connection)
        .map_err(defect)?;
    Ok(())
}

/// Whether an interval runs for which a sign of life at this moment is new.
pub(super) fn is_news(connection: &Connection, sandbox: SandboxId, at: Timestamp) -> Attempt<bool> {
    let sql = "SELECT 1 FROM meters INDEXED BY meters_running \
               WHERE sandbox_id = ? AND ended_at IS NULL AND alive_at <= ? LIMIT 1";
    query(sql).bind(sandbox.to_string()).bind(micros(at)).any(connection)
}

pub(super) fn seen_alive(
    connection: &Connection,
    sandbox: SandboxId,
    at: Timestamp,
    usage: Option<&Usage>,
) -> Attempt<()> {
    query(
        "UPDATE meters INDEXED BY meters_running SET alive_at = ?1, usage = coalesce(?2, usage) \
         WHERE sandbox_id = ?3 AND ended_at IS NULL AND alive_at <= ?1",
    )
    .bind(micros(at))
    .bind(usage.map(serde_json::to_string).transpose()?)
    .bind(sandbox.to_string())
    .run(connection)?;
    Ok(())
}

pub(super) fn last_alive(
    connection: &Connection,
    sandbox: SandboxId,
) -> Attempt<Option<(Timestamp, Option<Usage>)>> {
    let sql = "SELECT alive_at, usage FROM meters INDEXED BY meters_running \
               WHERE sandbox_id = ? AND ended_at IS NULL ORDER BY alive_at DESC LIMIT 1";
    query(sql).bind(sandbox.to_string()).first(connection, |row| {
        let usage = row.get_ref(1)?.as_str_or_null()?.map(serde_json::from_str).transpose()?;
        Ok((moment(row.get(0)?)?, usage))
    })
}

pub(super) fn list(
    connection: &Connection,
    filter: &MeterFilter,
    cursor: Option<&str>,
    limit: Limit,
) -> Attempt<Page<Meter>> {
    let before = cursor.map(read_cursor).transpose()?;
    let mut rows = page_query(filter, before, limit)
        .all(connection, |row| Ok((write_cursor(row.get(0)?, row.get(1)?), meter(row)?)))?;
    let wanted = limit.get() as usize;
    let more = rows.len() > wanted;
    rows.truncate(wanted);
    let next_cursor = rows.last().filter(|_| more).map(|(cursor, _)| cursor.clone());
    Ok(Page { items: rows.into_iter().map(|(_, meter)| meter).collect(), next_cursor })
}

fn meter(row: &Row<'_>) -> Attempt<Meter> {
    let mut meter: Meter = serde_json::from_str(row.get_ref(3)?.as_str()?)?;
    meter.alive_at = moment(row.get(2)?)?;
    Ok(meter)
}

fn write_cursor(started_at: i64, position: i64) -> String {
    format!("{CURSOR}{started_at}.{position}")
}

fn read_cursor(text: &str) -> Result<(i64, i64), Error> {
    let parse = || {
        let (started_at, position) = text.strip_prefix(CURSOR)?.split_once('.')?;
        Some((started_at.parse().ok()?, position.parse().ok()?))
    };
    // Only what we would have written ourselves.
    parse().filter(|(started_at, position)| write_cursor(*started_at, *position) == text).ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, "this cursor is not one of ours")
            .with_hint("pass `next_cursor` of the page before as it is, or no cursor for the first page")
    })
}

/// The statement of a page. The index is named: without statistics SQLite may prefer one that fits more rows. Those of
/// one sandbox are few and are put in order.
pub(super) fn page_query(filter: &MeterFilter, before: Option<(i64, i64)>, limit: Limit) -> Query<'_> {
    let index = match filter {
        MeterFilter { sandbox: Some(_), .. } => "meters_once",
        MeterFilter { owner_key: Some(_), .. } => "meters_owner",
        MeterFilter { extension: Some(_), .. } => "meters_extension",
        _ => "meters_started",
    };
    let mut query = query("SELECT started_at, position, alive_at, doc FROM meters INDEXED BY ");
    query.push(index).push(" WHERE started_at >= ").push_bind(filter.from.map_or(i64::MIN, micros));
    if let Some(until) = filter.until {
        query.push(" AND started_at < ").push_bind(micros(until));
    }
    if let Some((started_at, position)) = before {
        query.push(" AND (started_at, position) < (");
        query.push_bind(started_at).push(", ").push_bind(position).push(")");
    }
    if let Some(sandbox) = filter.sandbox {
        query.push(" AND sandbox_id = ").push_bind(sandbox.to_string());
    }
    if let Some(owner) = &filter.owner_key {
        query.push(" AND owner_key = ").push_bind(owner);
    }
    if let Some(extension) = &filter.extension {
        query.push(" AND extension = ").push_bind(extension);
    }
    // One more than asked tells whether there is a next page.
    query.push(" ORDER BY started_at DESC, position DESC LIMIT ").push_bind(i64::from(limit.get()) + 1);
    query
}
