//! Creates that were let through to an extension with limits.
//!
//! A slot counts for as long as its sandbox lives and is there or may be there: a sandbox that ended or moved on has
//! none, without anybody giving it back.

use jiff::Timestamp;
use rusqlite::Connection;
use sandboxer_core::SandboxId;
use sandboxer_core::route::{ExtensionLimits, Refusal, Slots};

use crate::sqlite::fault::Attempt;
use crate::sqlite::query::query;
use crate::sqlite::rows::{micros, moment};

/// A slot whose sandbox is not there any more counts for the rate only, while that looks back so far. One whose time is
/// over is not there: its backend ended it, whether or not somebody has looked. Nor is one whose maker has said nothing
/// for the time that a maker is believed.
const TAKEN: &str = "\
    SELECT count(sandboxes.id), \
           count(CASE WHEN state IN ('requested', 'provisioning') THEN 1 END), \
           count(CASE WHEN taken_at > ?1 THEN 1 END), min(CASE WHEN taken_at > ?1 THEN taken_at END) \
    FROM route_slots LEFT JOIN sandboxes ON sandboxes.id = sandbox_id AND state <> 'destroyed' \
         AND expires_at > ?4 AND (state NOT IN ('requested', 'provisioning') OR coalesce(lease_until, ?4) >= ?4) \
         AND (json_extract(doc, '$.extension') = route_slots.extension \
              OR json_extract(doc, '$.route.hedge.extension') = route_slots.extension) \
    WHERE route_slots.extension = ?2 AND sandbox_id <> ?3";

pub(super) fn taken(
    connection: &Connection,
    extension: &str,
    but: Option<SandboxId>,
    limits: &ExtensionLimits,
    now: Timestamp,
) -> Attempt<Slots> {
    let number = |count: i64| u32::try_from(count).unwrap_or(u32::MAX);
    query(TAKEN)
        .bind(window_start(limits, now))
        .bind(extension)
        .bind(but.map(|id| id.to_string()).unwrap_or_default())
        .bind(micros(now))
        .one(connection, |row| {
            Ok(Slots {
                living: number(row.get(0)?),
                creating: number(row.get(1)?),
                recent: number(row.get(2)?),
                since: row.get::<_, Option<i64>>(3)?.map(moment).transpose()?,
            })
        })
}

fn window_start(limits: &ExtensionLimits, now: Timestamp) -> i64 {
    let window = i64::try_from(limits.window().as_millis()).unwrap_or(i64::MAX);
    micros(now).saturating_sub(window.saturating_mul(1_000))
}

pub(super) fn take(
    connection: &Connection,
    extension: &str,
    sandbox: SandboxId,
    limits: &ExtensionLimits,
    now: Timestamp,
) -> Attempt<Option<Refusal>> {
    let slots = taken(connection, extension, Some(sandbox), limits, now)?;
    if let Some(refusal) = limits.refuse(slots, now) {
        return Ok(Some(refusal));
    }
    query("INSERT OR REPLACE INTO route_slots VALUES (?, ?, ?)")
        .bind(extension)
        .bind(sandbox.to_string())
        .bind(micros(now))
        .run(connection)?;
    query(
        "DELETE FROM route_slots WHERE extension = ? AND taken_at <= ? AND NOT EXISTS \
         (SELECT 1 FROM sandboxes WHERE id = sandbox_id AND state <> 'destroyed')",
    )
    .bind(extension)
    .bind(window_start(limits, now))
    .run(connection)?;
    Ok(None)
}

pub(super) fn adopt(connection: &Connection, extension: &str) -> Attempt<()> {
    let sql = "INSERT OR IGNORE INTO route_slots \
               SELECT ?, id, created_at FROM sandboxes INDEXED BY sandboxes_living \
               WHERE state NOT IN ('destroyed', 'requested', 'provisioning') AND state <> 'destroyed' \
               AND json_extract(doc, '$.extension') = ?";
    query(sql).bind(extension).bind(extension).run(connection)?;
    Ok(())
}
