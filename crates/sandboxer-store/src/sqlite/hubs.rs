//! Hubs of the house, which every process queues for.

use jiff::Timestamp;
use rusqlite::{Connection, Row};
use sandboxer_core::{Error, ErrorKind};

use super::fault::Attempt;
use super::query::query;
use super::rows::micros;
use crate::outgoing::Outlet;

/// A process that said nothing for so long is gone.
const IN_USE_MICROS: i64 = 90 * 1_000_000;

/// A process has its URL.
pub(super) fn in_use(sink: &str) -> Error {
    Error::new(ErrorKind::IllegalState, format!("`{sink}` is in use")).with_hint(
        "take its URL out of the configuration and end the servers that have it; two minutes later it can be forgotten",
    )
}

pub(super) fn list(connection: &Connection) -> Attempt<Vec<Outlet>> {
    query("SELECT sink, patterns FROM hubs ORDER BY sink").all(connection, outlet)
}

fn outlet(row: &Row<'_>) -> Attempt<Outlet> {
    Ok(Outlet { name: row.get(0)?, patterns: serde_json::from_str(row.get_ref(1)?.as_str()?)? })
}

/// Writes down what each of these wants from now on.
pub(super) fn know(connection: &Connection, outlets: &[Outlet]) -> Attempt<()> {
    for outlet in outlets {
        query(
            "INSERT INTO hubs (sink, patterns) VALUES (?, ?) \
             ON CONFLICT (sink) DO UPDATE SET patterns = excluded.patterns",
        )
        .bind(&outlet.name)
        .bind(serde_json::to_string(&outlet.patterns)?)
        .run(connection)?;
    }
    Ok(())
}

/// Whoever said this is there and has the URLs.
pub(super) fn told(connection: &Connection, outlets: &[Outlet], now: Timestamp) -> Attempt<()> {
    know(connection, outlets)?;
    for outlet in outlets {
        query("UPDATE hubs SET told_at = ? WHERE sink = ?")
            .bind(micros(now))
            .bind(&outlet.name)
            .run(connection)?;
    }
    Ok(())
}

/// Queues nothing for it any more, and forgets what was. Absent when it is not known.
pub(super) fn forget(connection: &Connection, sink: &str, now: Timestamp) -> Attempt<Option<u64>> {
    let told: Option<Option<i64>> = query("SELECT told_at FROM hubs WHERE sink = ?")
        .bind(sink)
        .first(connection, |row| Ok(row.get(0)?))?;
    let Some(told_at) = told else { return Ok(None) };
    if told_at.is_some_and(|told_at| told_at.saturating_add(IN_USE_MICROS) > micros(now)) {
        return Err(in_use(sink).into());
    }
    query("DELETE FROM hubs WHERE sink = ?").bind(sink).run(connection)?;
    query("DELETE FROM pauses WHERE sink = ?").bind(sink).run(connection)?;
    let waiting = query("DELETE FROM outbox WHERE sink = ?").bind(sink).run(connection)?;
    let dead = query("DELETE FROM dead_letters WHERE sink = ?").bind(sink).run(connection)?;
    Ok(Some((waiting + dead) as u64))
}
