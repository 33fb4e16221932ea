//! Hubs of the house, which every process queues for.

use rusqlite::{Connection, Row};

use super::fault::Attempt;
use super::query::query;
use crate::outgoing::Outlet;

pub(super) fn list(connection: &Connection) -> Attempt<Vec<Outlet>> {
    query("SELECT sink, patterns FROM hubs ORDER BY sink").all(connection, outlet)
}

fn outlet(row: &Row<'_>) -> Attempt<Outlet> {
    Ok(Outlet { name: row.get(0)?, patterns: serde_json::from_str(row.get_ref(1)?.as_str()?)? })
}

/// Writes down what each of these wants from now on.
pub(super) fn know(connection: &Connection, outlets: &[Outlet]) -> Attempt<()> {
    for outlet in outlets {
        query("INSERT OR REPLACE INTO hubs (sink, patterns) VALUES (?, ?)")
            .bind(&outlet.name)
            .bind(serde_json::to_string(&outlet.patterns)?)
            .run(connection)?;
    }
    Ok(())
}

/// Queues nothing for it any more, and forgets what was. Absent when it is not known.
pub(super) fn forget(connection: &Connection, sink: &str) -> Attempt<Option<u64>> {
    if query("DELETE FROM hubs WHERE sink = ?").bind(sink).run(connection)? == 0 {
        return Ok(None);
    }
    let waiting = query("DELETE FROM outbox WHERE sink = ?").bind(sink).run(connection)?;
    let dead = query("DELETE FROM dead_letters WHERE sink = ?").bind(sink).run(connection)?;
    Ok(Some((waiting + dead) as u64))
}
