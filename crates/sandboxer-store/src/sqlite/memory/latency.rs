//! How long creates took.

use jiff::Timestamp;
use sandboxer_core::Dur;
use sandboxer_core::route::{Backend, Digest, Window};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection as _, Row as _};

use crate::sqlite::fault::Attempt;
use crate::sqlite::rows::{count, micros, moment};

/// Of a row of [`super::PAST`].
pub(super) fn digest(row: &SqliteRow) -> Attempt<Digest> {
    Ok(Digest {
        p50: Dur::from_millis(count(row.try_get(3)?)?),
        p95: Dur::from_millis(count(row.try_get(4)?)?),
        samples: u32::try_from(row.try_get::<i64, _>(5)?).unwrap_or(u32::MAX),
        weight: row.try_get(6)?,
        updated_at: moment(row.try_get(7)?)?,
    })
}

pub(super) async fn add(
    connection: &mut SqliteConnection,
    backend: &Backend,
    profile: &str,
    took: Dur,
    now: Timestamp,
) -> Attempt<Digest> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let sql = "SELECT window FROM route_latency WHERE profile = ? AND extension = ? AND host = ?";
    let row = sqlx::query(sql)
        .bind(profile)
        .bind(&backend.extension)
        .bind(&backend.host)
        .fetch_optional(&mut *tx)
        .await?;
    let mut window: Window = match &row {
        Some(row) => serde_json::from_str(row.try_get(0)?)?,
        None => Window::default(),
    };
    let digest = window.add(took, now);
    sqlx::query("INSERT OR REPLACE INTO route_latency VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")
        .bind(profile)
        .bind(&backend.extension)
        .bind(&backend.host)
        .bind(digest.p50.as_millis() as i64)
        .bind(digest.p95.as_millis() as i64)
        .bind(i64::from(digest.samples))
        .bind(digest.weight)
        .bind(micros(digest.updated_at))
        .bind(serde_json::to_string(&window)?)
        .execute(&mut *tx)
        .await?;
    sqlx::query("DELETE FROM route_breakers WHERE extension = ? AND host = ?")
        .bind(&backend.extension)
        .bind(&backend.host)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(digest)
}
