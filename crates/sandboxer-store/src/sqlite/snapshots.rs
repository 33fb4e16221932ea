//! Snapshots: the row before the effect, the row and its event after it, and the listing.

use rusqlite::{Connection, Row};
use sandboxer_core::event::NewEvent;
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::snapshot::{Snapshot, SnapshotRecord, Taken};
use sandboxer_core::{Error, ErrorKind, Retry, SandboxId, SnapshotId};

use super::events::Journal;
use super::fault::Attempt;
use super::query::{Query, query};
use super::rows::{count, lease, micros};
use crate::model::{Lease, SnapshotFilter, StoredSnapshot};

/// What a cursor starts with; the rest is the last id of its page without the prefix.
const CURSOR: &str = "s1";

pub(super) const GET: &str = "SELECT doc, spec, taken, owner_key, version, doomed, lease_owner, lease_until FROM snapshots WHERE id = ?";
pub(super) const UNSETTLED: &str = "SELECT doc, spec, taken, owner_key, version, doomed, lease_owner, lease_until \
     FROM snapshots INDEXED BY snapshots_unsettled WHERE taken IS NULL OR doomed = 1 ORDER BY id";

fn stored(row: &Row<'_>) -> Attempt<StoredSnapshot> {
    let taken = row.get_ref(2)?.as_str_or_null()?.map(serde_json::from_str).transpose()?;
    Ok(StoredSnapshot {
        record: SnapshotRecord {
            snapshot: serde_json::from_str(row.get_ref(0)?.as_str()?)?,
            spec: serde_json::from_str(row.get_ref(1)?.as_str()?)?,
            taken,
            owner_key: row.get(3)?,
        },
        version: count(row.get(4)?)?,
        doomed: row.get(5)?,
        lease: lease(row.get(6)?, row.get(7)?)?,
    })
}

pub(super) fn insert(
    connection: &Connection,
    record: SnapshotRecord,
    doomed: bool,
    lease: Lease,
) -> Attempt<StoredSnapshot> {
    let (doc, spec) = (serde_json::to_string(&record.snapshot)?, serde_json::to_string(&record.spec)?);
    let taken = record.taken.as_ref().map(serde_json::to_string).transpose()?;
    let sandbox = record.snapshot.sandbox_id.to_string();
    if !query("SELECT 1 FROM sandboxes WHERE id = ?").bind(&sandbox).any(connection)? {
        return Err(Error::new(ErrorKind::SandboxNotFound, format!("there is no sandbox `{sandbox}`")).into());
    }
    query(
        "INSERT INTO snapshots (id, sandbox_id, version, created_at, owner_key, doomed, lease_owner, lease_until, doc, \
         spec, taken) VALUES (?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(record.snapshot.snapshot_id.to_string())
    .bind(&sandbox)
    .bind(micros(record.snapshot.created_at))
    .bind(&record.owner_key)
    .bind(doomed)
    .bind(&lease.owner)
    .bind(micros(lease.until))
    .bind(doc)
    .bind(spec)
    .bind(taken)
    .run(connection)?;
    Ok(StoredSnapshot { record, version: 1, doomed, lease: Some(lease) })
}

/// The row for a change: there, and as it was read.
fn expect(connection: &Connection, id: SnapshotId, expected_version: u64) -> Attempt<StoredSnapshot> {
    let found = get(connection, id)?.ok_or_else(|| not_found(id))?;
    if found.version == expected_version {
        return Ok(found);
    }
    Err(Error::new(ErrorKind::Conflict, format!("snapshot `{id}` was changed by somebody else"))
        .with_retry(Retry::Temporary)
        .with_hint("read it again and repeat the request")
        .into())
}

fn not_found(id: SnapshotId) -> Error {
    Error::new(ErrorKind::SnapshotNotFound, format!("there is no snapshot `{id}`"))
}

pub(super) fn taken(
    connection: &Connection,
    journal: &Journal,
    before: &StoredSnapshot,
    taken: Taken,
    keep_lease: bool,
    fact: NewEvent,
) -> Attempt<StoredSnapshot> {
    let id = before.record.snapshot.snapshot_id;
    let mut found = expect(connection, id, before.version)?;
    found.record.snapshot.size_bytes = taken.size_bytes;
    found.record.taken = Some(taken);
    found.version += 1;
    if !keep_lease {
        found.lease = None;
    }
    query(
        "UPDATE snapshots SET doc = ?, taken = ?, version = version + 1, lease_owner = ?, lease_until = ? WHERE id = ?",
    )
    .bind(serde_json::to_string(&found.record.snapshot)?)
    .bind(serde_json::to_string(&found.record.taken)?)
    .bind(found.lease.as_ref().map(|lease| lease.owner.as_str()))
    .bind(found.lease.as_ref().map(|lease| micros(lease.until)))
    .bind(id.to_string())
    .run(connection)?;
    journal.facts(connection, found.record.snapshot.sandbox_id, vec![fact])?;
    Ok(found)
}

pub(super) fn claim(
    connection: &Connection,
    before: &StoredSnapshot,
    doomed: bool,
    lease: Option<Lease>,
) -> Attempt<StoredSnapshot> {
    let id = before.record.snapshot.snapshot_id;
    let found = expect(connection, id, before.version)?;
    query(
        "UPDATE snapshots SET doomed = ?, version = version + 1, lease_owner = ?, lease_until = ? WHERE id = ?",
    )
    .bind(doomed)
    .bind(lease.as_ref().map(|lease| lease.owner.as_str()))
    .bind(lease.as_ref().map(|lease| micros(lease.until)))
    .bind(id.to_string())
    .run(connection)?;
    Ok(StoredSnapshot { doomed, lease, version: found.version + 1, ..found })
}

pub(super) fn remove(
    connection: &Connection,
    journal: &Journal,
    before: &StoredSnapshot,
    fact: Option<NewEvent>,
) -> Attempt<()> {
    let id = before.record.snapshot.snapshot_id;
    let found = expect(connection, id, before.version)?;
    query("DELETE FROM snapshots WHERE id = ?").bind(id.to_string()).run(connection)?;
    if let Some(fact) = fact {
        journal.facts(connection, found.record.snapshot.sandbox_id, vec![fact])?;
    }
    Ok(())
}

pub(super) fn get(connection: &Connection, id: SnapshotId) -> Attempt<Option<StoredSnapshot>> {
    query(GET).bind(id.to_string()).first(connection, stored)
}

pub(super) fn unsettled(connection: &Connection) -> Attempt<Vec<StoredSnapshot>> {
    query(UNSETTLED).all(connection, stored)
}

pub(super) fn list(
    connection: &Connection,
    filter: &SnapshotFilter,
    cursor: Option<&str>,
    limit: Limit,
) -> Attempt<Page<Snapshot>> {
    let before = cursor.map(read_cursor).transpose()?;
    let mut items = page_query(filter, before, limit)
        .all(connection, |row| Ok(serde_json::from_str::<Snapshot>(row.get_ref(0)?.as_str()?)?))?;
    let more = items.len() > limit.get() as usize;
    items.truncate(limit.get() as usize);
    let next_cursor = items.last().filter(|_| more).map(|last| write_cursor(last.snapshot_id));
    Ok(Page { items, next_cursor })
}

/// Only what the backend has: a row without that is somebody's work under way.
pub(super) fn page_query(filter: &SnapshotFilter, before: Option<SnapshotId>, limit: Limit) -> Query<'_> {
    let index = match (filter.sandbox, &filter.owner_key) {
        (Some(_), _) => "snapshots_sandbox",
        (None, Some(_)) => "snapshots_owner",
        (None, None) => "snapshots_taken",
    };
    let mut query = query("SELECT doc FROM snapshots INDEXED BY ");
    query.push(index).push(" WHERE taken IS NOT NULL");
    if let Some(sandbox) = filter.sandbox {
        query.push(" AND sandbox_id = ").push_bind(SandboxId::to_string(&sandbox));
    }
    if let Some(owner) = &filter.owner_key {
        query.push(" AND owner_key = ").push_bind(owner);
    }
    let before = before.map_or_else(|| "snp_~".to_owned(), |id| id.to_string());
    query.push(" AND id < ").push_bind(before);
    // One more than asked tells whether there is a next page.
    query.push(" ORDER BY id DESC LIMIT ").push_bind(i64::from(limit.get()) + 1);
    query
}

fn write_cursor(last: SnapshotId) -> String {
    last.to_string().replacen(SnapshotId::PREFIX, CURSOR, 1)
}

fn read_cursor(text: &str) -> Result<SnapshotId, Error> {
    let id = text.strip_prefix(CURSOR).and_then(|rest| format!("{}{rest}", SnapshotId::PREFIX).parse().ok());
    id.ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, "this cursor is not one of ours")
            .with_hint("pass `next_cursor` of the page before as it is, or no cursor for the first page")
    })
}
