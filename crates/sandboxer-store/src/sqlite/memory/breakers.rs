//! Who failed how, and who tries it again.

use jiff::Timestamp;
use sandboxer_core::Class;
use sandboxer_core::route::{Backend, Breaker, BreakerState};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection as _, Row as _};

use crate::memory::RouteFailure;
use crate::sqlite::fault::{Attempt, Fault};
use crate::sqlite::rows::{micros, moment};

/// Of a row of [`super::PAST`].
pub(super) fn breaker(class: &str, row: &SqliteRow) -> Attempt<Breaker> {
    let class = Class::from_text(class).ok_or_else(|| Fault::internal(format!("`{class}` is no class")))?;
    Ok(Breaker {
        class,
        failures: u32::try_from(row.try_get::<i64, _>(3)?).unwrap_or(u32::MAX),
        until: row.try_get::<Option<i64>, _>(4)?.map(moment).transpose()?,
        probe_until: row.try_get::<Option<i64>, _>(5)?.map(moment).transpose()?,
        last_at: moment(row.try_get(7)?)?,
        reason: row.try_get(8)?,
    })
}

async fn of(connection: &mut SqliteConnection, backend: &Backend) -> Attempt<Vec<Breaker>> {
    let sql = "SELECT class, extension, host, failures, open_until, probe_until, NULL, last_at, reason \
               FROM route_breakers WHERE extension = ? AND host = ?";
    let rows = sqlx::query(sql).bind(&backend.extension).bind(&backend.host).fetch_all(connection).await?;
    rows.iter().map(|row| breaker(row.try_get(0)?, row)).collect()
}

pub(super) async fn failed(
    connection: &mut SqliteConnection,
    backend: &Backend,
    failure: &RouteFailure<'_>,
    now: Timestamp,
) -> Attempt<Breaker> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let before = of(&mut tx, backend).await?;
    let before = before.iter().find(|breaker| breaker.class == failure.class);
    let after = Breaker::after_failure(before, failure.class, failure.reason, failure.retry_after, now);
    sqlx::query("INSERT OR REPLACE INTO route_breakers VALUES (?, ?, ?, ?, ?, ?, ?, ?)")
        .bind(&backend.extension)
        .bind(&backend.host)
        .bind(after.class.as_str())
        .bind(i64::from(after.failures))
        .bind(micros(after.last_at))
        .bind(after.until.map(micros))
        .bind(after.probe_until.map(micros))
        .bind(&after.reason)
        .execute(&mut *tx)
        .await?;
    unprobe(&mut tx, backend).await?;
    tx.commit().await?;
    Ok(after)
}

pub(super) async fn probe(
    connection: &mut SqliteConnection,
    backend: &Backend,
    until: Timestamp,
    now: Timestamp,
) -> Attempt<bool> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let breakers = of(&mut tx, backend).await?;
    let is_barred = |breaker: &Breaker| breaker.state(now) == BreakerState::Open || breaker.is_probed(now);
    if breakers.iter().any(is_barred) {
        return Ok(false);
    }
    if breakers.iter().any(|breaker| breaker.state(now) == BreakerState::HalfOpen) {
        sqlx::query(
            "UPDATE route_breakers SET probe_until = ? \
             WHERE extension = ? AND host = ? AND open_until IS NOT NULL",
        )
        .bind(micros(until))
        .bind(&backend.extension)
        .bind(&backend.host)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
    }
    Ok(true)
}

pub(super) async fn unprobe(connection: &mut SqliteConnection, backend: &Backend) -> Attempt<()> {
    sqlx::query(
        "UPDATE route_breakers SET probe_until = NULL \
         WHERE extension = ? AND host = ? AND probe_until IS NOT NULL",
    )
    .bind(&backend.extension)
    .bind(&backend.host)
    .execute(connection)
    .await?;
    Ok(())
}
