//! Who failed how, and who tries it again.

use jiff::Timestamp;
use rusqlite::{Connection, Row};
use sandboxer_core::Class;
use sandboxer_core::route::{Backend, Breaker, BreakerState};

use crate::memory::RouteFailure;
use crate::sqlite::fault::{Attempt, Fault};
use crate::sqlite::query::query;
use crate::sqlite::rows::{micros, moment};

/// Of a row of [`super::PAST`].
pub(super) fn breaker(class: &str, row: &Row<'_>) -> Attempt<Breaker> {
    let class = Class::from_text(class).ok_or_else(|| Fault::internal(format!("`{class}` is no class")))?;
    Ok(Breaker {
        class,
        failures: u32::try_from(row.get::<_, i64>(3)?).unwrap_or(u32::MAX),
        until: row.get::<_, Option<i64>>(4)?.map(moment).transpose()?,
        probe_until: row.get::<_, Option<i64>>(5)?.map(moment).transpose()?,
        last_at: moment(row.get(7)?)?,
        reason: row.get(8)?,
    })
}

fn of(connection: &Connection, backend: &Backend) -> Attempt<Vec<Breaker>> {
    let sql = "SELECT class, extension, host, failures, open_until, probe_until, NULL, last_at, reason \
               FROM route_breakers WHERE extension = ? AND host = ?";
    query(sql)
        .bind(&backend.extension)
        .bind(&backend.host)
        .all(connection, |row| breaker(row.get_ref(0)?.as_str()?, row))
}

pub(super) fn failed(
    connection: &Connection,
    backend: &Backend,
    failure: &RouteFailure<'_>,
    now: Timestamp,
) -> Attempt<Breaker> {
    let before = of(connection, backend)?;
    let before = before.iter().find(|breaker| breaker.class == failure.class);
    let after = Breaker::after_failure(before, failure.class, failure.reason, failure.retry_after, now);
    query("INSERT OR REPLACE INTO route_breakers VALUES (?, ?, ?, ?, ?, ?, ?, ?)")
        .bind(&backend.extension)
        .bind(&backend.host)
        .bind(after.class.as_str())
        .bind(i64::from(after.failures))
        .bind(micros(after.last_at))
        .bind(after.until.map(micros))
        .bind(after.probe_until.map(micros))
        .bind(&after.reason)
        .run(connection)?;
    unprobe(connection, backend)?;
    Ok(after)
}

pub(super) fn probe(
    connection: &Connection,
    backend: &Backend,
    until: Timestamp,
    now: Timestamp,
) -> Attempt<bool> {
    let breakers = of(connection, backend)?;
    let is_barred = |breaker: &Breaker| breaker.state(now) == BreakerState::Open || breaker.is_probed(now);
    if breakers.iter().any(is_barred) {
        return Ok(false);
    }
    if breakers.iter().any(|breaker| breaker.state(now) == BreakerState::HalfOpen) {
        query(
            "UPDATE route_breakers SET probe_until = ? \
             WHERE extension = ? AND host = ? AND open_until IS NOT NULL",
        )
        .bind(micros(until))
        .bind(&backend.extension)
        .bind(&backend.host)
        .run(connection)?;
    }
    Ok(true)
}

pub(super) fn unprobe(connection: &Connection, backend: &Backend) -> Attempt<()> {
    query(
        "UPDATE route_breakers SET probe_until = NULL \
         WHERE extension = ? AND host = ? AND probe_until IS NOT NULL",
    )
    .bind(&backend.extension)
    .bind(&backend.host)
    .run(connection)?;
    Ok(())
}
