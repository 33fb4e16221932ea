//! Idempotency keys: of creates, which point to a sandbox, and of other requests, which keep their answer.

use jiff::Timestamp;
use sandboxer_core::SandboxId;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection as _, Row as _};

use super::fault::{Attempt, Fault};
use super::rows::micros;
use crate::model::{Idempotency, Replay};

/// A request that has not answered for so long died with its process.
const ABANDONED_AFTER_MICROS: i64 = 10 * 60 * 1_000_000;

/// What a create finds under its key.
pub(super) enum Claim {
    Free,
    Made(SandboxId),
    Mismatch,
}

pub(super) async fn created(connection: &mut SqliteConnection, request: &Idempotency) -> Attempt<Claim> {
    let row = sqlx::query("SELECT body_hash, sandbox_id FROM idempotency WHERE scope = ? AND key = ?")
        .bind(&request.scope)
        .bind(&request.key)
        .fetch_optional(connection)
        .await?;
    let Some(row) = row else { return Ok(Claim::Free) };
    let sandbox: Option<&str> = row.try_get(1)?;
    match sandbox {
        Some(id) if row.try_get::<&str, _>(0)? == request.body_hash => Ok(Claim::Made(id.parse()?)),
        _ => Ok(Claim::Mismatch),
    }
}

/// Remembers which sandbox a create made or found.
pub(super) async fn link(
    connection: &mut SqliteConnection,
    request: &Idempotency,
    sandbox: SandboxId,
    created_at: Timestamp,
) -> Attempt<()> {
    sqlx::query(
        "INSERT INTO idempotency (scope, key, body_hash, sandbox_id, created_at) VALUES (?, ?, ?, ?, ?)",
    )
    .bind(&request.scope)
    .bind(&request.key)
    .bind(&request.body_hash)
    .bind(sandbox.to_string())
    .bind(micros(created_at))
    .execute(connection)
    .await?;
    Ok(())
}

/// Frees the key of a create that nobody got an answer from.
pub(super) async fn unlink(connection: &mut SqliteConnection, request: &Idempotency) -> Attempt<()> {
    sqlx::query("DELETE FROM idempotency WHERE scope = ? AND key = ?")
        .bind(&request.scope)
        .bind(&request.key)
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) async fn begin(
    connection: &mut SqliteConnection,
    request: &Idempotency,
    now: Timestamp,
) -> Attempt<Replay> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let row = sqlx::query(
        "SELECT body_hash, sandbox_id IS NOT NULL, status, body, created_at FROM idempotency \
         WHERE scope = ? AND key = ?",
    )
    .bind(&request.scope)
    .bind(&request.key)
    .fetch_optional(&mut *tx)
    .await?;
    if let Some(row) = row {
        let of_create: bool = row.try_get(1)?;
        let same = row.try_get::<&str, _>(0)? == request.body_hash && !of_create;
        let status: Option<i64> = row.try_get(2)?;
        let deadline = row.try_get::<i64, _>(4)?.saturating_add(ABANDONED_AFTER_MICROS);
        let abandoned = status.is_none() && !of_create && deadline <= micros(now);
        match status {
            _ if abandoned => {}
            _ if !same => return Ok(Replay::Mismatch),
            None => return Ok(Replay::InFlight),
            Some(status) => {
                let status = u16::try_from(status)
                    .map_err(|_| Fault::internal(format!("{status} is not a status")))?;
                return Ok(Replay::Done {
                    status,
                    body: row.try_get::<Option<String>, _>(3)?.unwrap_or_default(),
                });
            }
        }
    }
    sqlx::query("INSERT OR REPLACE INTO idempotency (scope, key, body_hash, created_at) VALUES (?, ?, ?, ?)")
        .bind(&request.scope)
        .bind(&request.key)
        .bind(&request.body_hash)
        .bind(micros(now))
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(Replay::New)
}

/// The first answer stays, should two processes believe that the request is theirs.
pub(super) async fn finish(
    connection: &mut SqliteConnection,
    request: &Idempotency,
    answer: Option<(u16, String)>,
) -> Attempt<()> {
    let query = match answer {
        Some((status, body)) => sqlx::query(
            "UPDATE idempotency SET status = ?, body = ? \
             WHERE scope = ? AND key = ? AND body_hash = ? AND status IS NULL AND sandbox_id IS NULL",
        )
        .bind(status)
        .bind(body),
        None => sqlx::query(
            "DELETE FROM idempotency \
             WHERE scope = ? AND key = ? AND body_hash = ? AND status IS NULL AND sandbox_id IS NULL",
        ),
    };
    query.bind(&request.scope).bind(&request.key).bind(&request.body_hash).execute(connection).await?;
    Ok(())
}
