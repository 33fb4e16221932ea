//! Idempotency keys: of creates, which point to a sandbox, and of other requests, which keep their answer.

use jiff::Timestamp;
use rusqlite::{Connection, Row};
use sandboxer_core::SandboxId;

use super::fault::{Attempt, Fault};
use super::query::query;
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

pub(super) fn created(connection: &Connection, request: &Idempotency) -> Attempt<Claim> {
    let known = query("SELECT body_hash, sandbox_id FROM idempotency WHERE scope = ? AND key = ?")
        .bind(&request.scope)
        .bind(&request.key)
        .first(connection, |row| match row.get_ref(1)?.as_str_or_null()? {
            Some(id) if row.get_ref(0)?.as_str()? == request.body_hash => Ok(Claim::Made(id.parse()?)),
            _ => Ok(Claim::Mismatch),
        })?;
    Ok(known.unwrap_or(Claim::Free))
}

/// Remembers which sandbox a create made or found.
pub(super) fn link(
    connection: &Connection,
    request: &Idempotency,
    sandbox: SandboxId,
    created_at: Timestamp,
) -> Attempt<()> {
    query("INSERT INTO idempotency (scope, key, body_hash, sandbox_id, created_at) VALUES (?, ?, ?, ?, ?)")
        .bind(&request.scope)
        .bind(&request.key)
        .bind(&request.body_hash)
        .bind(sandbox.to_string())
        .bind(micros(created_at))
        .run(connection)?;
    Ok(())
}

/// Frees the key of a create that nobody got an answer from.
pub(super) fn unlink(connection: &Connection, request: &Idempotency) -> Attempt<()> {
    query("DELETE FROM idempotency WHERE scope = ? AND key = ?")
        .bind(&request.scope)
        .bind(&request.key)
        .run(connection)?;
    Ok(())
}

pub(super) fn begin(connection: &Connection, request: &Idempotency, now: Timestamp) -> Attempt<Replay> {
    let known = query(
        "SELECT body_hash, sandbox_id IS NOT NULL, status, body, created_at FROM idempotency \
         WHERE scope = ? AND key = ?",
    )
    .bind(&request.scope)
    .bind(&request.key)
    .first(connection, |row| replay(row, request, now))?;
    if let Some(Some(known)) = known {
        return Ok(known);
    }
    query("INSERT OR REPLACE INTO idempotency (scope, key, body_hash, created_at) VALUES (?, ?, ?, ?)")
        .bind(&request.scope)
        .bind(&request.key)
        .bind(&request.body_hash)
        .bind(micros(now))
        .run(connection)?;
    Ok(Replay::New)
}

/// What is known of a request that came before; nothing when it died with its process.
fn replay(row: &Row<'_>, request: &Idempotency, now: Timestamp) -> Attempt<Option<Replay>> {
    let of_create: bool = row.get(1)?;
    let same = row.get_ref(0)?.as_str()? == request.body_hash && !of_create;
    let status: Option<i64> = row.get(2)?;
    let deadline = row.get::<_, i64>(4)?.saturating_add(ABANDONED_AFTER_MICROS);
    let abandoned = status.is_none() && !of_create && deadline <= micros(now);
    Ok(match status {
        _ if abandoned => None,
        _ if !same => Some(Replay::Mismatch),
        None => Some(Replay::InFlight),
        Some(status) => {
            let status =
                u16::try_from(status).map_err(|_| Fault::internal(format!("{status} is not a status")))?;
            Some(Replay::Done { status, body: row.get::<_, Option<String>>(3)?.unwrap_or_default() })
        }
    })
}

/// The first answer stays, should two processes believe that the request is theirs.
pub(super) fn finish(
    connection: &Connection,
    request: &Idempotency,
    answer: Option<(u16, String)>,
) -> Attempt<()> {
    let query = match answer {
        Some((status, body)) => query(
            "UPDATE idempotency SET status = ?, body = ? \
             WHERE scope = ? AND key = ? AND body_hash = ? AND status IS NULL AND sandbox_id IS NULL",
        )
        .bind(status)
        .bind(body),
        None => query(
            "DELETE FROM idempotency \
             WHERE scope = ? AND key = ? AND body_hash = ? AND status IS NULL AND sandbox_id IS NULL",
        ),
    };
    query.bind(&request.scope).bind(&request.key).bind(&request.body_hash).run(connection)?;
    Ok(())
}
