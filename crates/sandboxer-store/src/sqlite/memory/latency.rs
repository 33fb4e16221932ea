//! How long creates took.

use jiff::Timestamp;
use rusqlite::{Connection, Row};
use sandboxer_core::Dur;
use sandboxer_core::route::{Backend, Digest, Window};

use crate::sqlite::fault::Attempt;
use crate::sqlite::query::query;
use crate::sqlite::rows::{count, micros, moment};

/// Of a row of [`super::PAST`].
pub(super) fn digest(row: &Row<'_>) -> Attempt<Digest> {
    Ok(Digest {
        p50: Dur::from_millis(count(row.get(3)?)?),
        p95: Dur::from_millis(count(row.get(4)?)?),
        samples: u32::try_from(row.get::<_, i64>(5)?).unwrap_or(u32::MAX),
        weight: row.get(6)?,
        updated_at: moment(row.get(7)?)?,
    })
}

pub(super) fn add(
    connection: &Connection,
    backend: &Backend,
    profile: &str,
    took: Dur,
    now: Timestamp,
) -> Attempt<Digest> {
    let sql = "SELECT window FROM route_latency WHERE profile = ? AND extension = ? AND host = ?";
    let known = query(sql)
        .bind(profile)
        .bind(&backend.extension)
        .bind(&backend.host)
        .first(connection, |row| Ok(serde_json::from_str::<Window>(row.get_ref(0)?.as_str()?)?))?;
    let mut window = known.unwrap_or_default();
    let digest = window.add(took, now);
    query("INSERT OR REPLACE INTO route_latency VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")
        .bind(profile)
        .bind(&backend.extension)
        .bind(&backend.host)
        .bind(digest.p50.as_millis() as i64)
        .bind(digest.p95.as_millis() as i64)
        .bind(i64::from(digest.samples))
        .bind(digest.weight)
        .bind(micros(digest.updated_at))
        .bind(serde_json::to_string(&window)?)
        .run(connection)?;
    // A create that began before a failure says nothing about what was after it.
    let took = i64::try_from(took.as_millis()).unwrap_or(i64::MAX).saturating_mul(1_000);
    query("DELETE FROM route_breakers WHERE extension = ? AND host = ? AND last_at <= ?")
        .bind(&backend.extension)
        .bind(&backend.host)
        .bind(micros(now).saturating_sub(took))
        .run(connection)?;
    Ok(digest)
}
