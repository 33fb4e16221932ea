//! Snapshots: the row before the effect, the row and its event after it, and the listing.

use sandboxer_core::event::NewEvent;
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::snapshot::{Snapshot, SnapshotRecord, Taken};
use sandboxer_core::{Error, ErrorKind, Retry, SandboxId, SnapshotId};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection as _, QueryBuilder, Row as _, Sqlite};

use super::events::Journal;
use super::fault::Attempt;
use super::rows::{count, lease, micros};
use crate::model::{Lease, SnapshotFilter, StoredSnapshot};

/// What a cursor starts with; the rest is the last id of its page without the prefix.
const CURSOR: &str = "s1";

pub(super) const GET: &str = "SELECT doc, spec, taken, owner_key, version, doomed, lease_owner, lease_until FROM snapshots WHERE id = ?";
pub(super) const UNSETTLED: &str = "SELECT doc, spec, taken, owner_key, version, doomed, lease_owner, lease_until \
     FROM snapshots INDEXED BY snapshots_unsettled WHERE taken IS NULL OR doomed = 1 ORDER BY id";

fn stored(row: &SqliteRow) -> Attempt<StoredSnapshot> {
    let taken = row.try_get::<Option<&str>, _>(2)?.map(serde_json::from_str).transpose()?;
    Ok(StoredSnapshot {
        record: SnapshotRecord {
            snapshot: serde_json::from_str(row.try_get(0)?)?,
            spec: serde_json::from_str(row.try_get(1)?)?,
            taken,
            owner_key: row.try_get(3)?,
        },
        version: count(row.try_get(4)?)?,
        doomed: row.try_get(5)?,
        lease: lease(row.try_get(6)?, row.try_get(7)?)?,
    })
}

pub(super) async fn insert(
    connection: &mut SqliteConnection,
    record: SnapshotRecord,
    doomed: bool,
    lease: Lease,
) -> Attempt<StoredSnapshot> {
    let (doc, spec) = (serde_json::to_string(&record.snapshot)?, serde_json::to_string(&record.spec)?);
    let taken = record.taken.as_ref().map(serde_json::to_string).transpose()?;
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let sandbox = record.snapshot.sandbox_id.to_string();
    let known =
        sqlx::query("SELECT 1 FROM sandboxes WHERE id = ?").bind(&sandbox).fetch_optional(&mut *tx).await?;
    if known.is_none() {
        return Err(Error::new(ErrorKind::SandboxNotFound, format!("there is no sandbox `{sandbox}`")).into());
    }
    sqlx::query(
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
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(StoredSnapshot { record, version: 1, doomed, lease: Some(lease) })
}

/// The row for a change: there, and as it was read.
async fn expect(
    connection: &mut SqliteConnection,
    id: SnapshotId,
    expected_version: u64,
) -> Attempt<StoredSnapshot> {
    let found = get(connection, id).await?.ok_or_else(|| not_found(id))?;
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

pub(super) async fn taken(
    connection: &mut SqliteConnection,
    journal: &Journal,
    before: &StoredSnapshot,
    taken: Taken,
    keep_lease: bool,
    fact: NewEvent,
) -> Attempt<StoredSnapshot> {
    let id = before.record.snapshot.snapshot_id;
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let mut found = expect(&mut tx, id, before.version).await?;
    found.record.snapshot.size_bytes = taken.size_bytes;
    found.record.taken = Some(taken);
    found.version += 1;
    if !keep_lease {
        found.lease = None;
    }
    sqlx::query(
        "UPDATE snapshots SET doc = ?, taken = ?, version = version + 1, lease_owner = ?, lease_until = ? WHERE id = ?",
    )
    .bind(serde_json::to_string(&found.record.snapshot)?)
    .bind(serde_json::to_string(&found.record.taken)?)
    .bind(found.lease.as_ref().map(|lease| lease.owner.as_str()))
    .bind(found.lease.as_ref().map(|lease| micros(lease.until)))
    .bind(id.to_string())
    .execute(&mut *tx)
    .await?;
    journal.facts(&mut tx, found.record.snapshot.sandbox_id, vec![fact]).await?;
    tx.commit().await?;
    Ok(found)
}

pub(super) async fn claim(
    connection: &mut SqliteConnection,
    before: &StoredSnapshot,
    doomed: bool,
    lease: Option<Lease>,
) -> Attempt<StoredSnapshot> {
    let id = before.record.snapshot.snapshot_id;
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let found = expect(&mut tx, id, before.version).await?;
    sqlx::query(
        "UPDATE snapshots SET doomed = ?, version = version + 1, lease_owner = ?, lease_until = ? WHERE id = ?",
    )
    .bind(doomed)
    .bind(lease.as_ref().map(|lease| lease.owner.as_str()))
    .bind(lease.as_ref().map(|lease| micros(lease.until)))
    .bind(id.to_string())
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(StoredSnapshot { doomed, lease, version: found.version + 1, ..found })
}

pub(super) async fn remove(
    connection: &mut SqliteConnection,
    journal: &Journal,
    before: &StoredSnapshot,
    fact: Option<NewEvent>,
) -> Attempt<()> {
    let id = before.record.snapshot.snapshot_id;
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let found = expect(&mut tx, id, before.version).await?;
    sqlx::query("DELETE FROM snapshots WHERE id = ?").bind(id.to_string()).execute(&mut *tx).await?;
    if let Some(fact) = fact {
        journal.facts(&mut tx, found.record.snapshot.sandbox_id, vec![fact]).await?;
    }
    tx.commit().await?;
    Ok(())
}

pub(super) async fn get(
    connection: &mut SqliteConnection,
    id: SnapshotId,
) -> Attempt<Option<StoredSnapshot>> {
    let row = sqlx::query(GET).bind(id.to_string()).fetch_optional(connection).await?;
    row.as_ref().map(stored).transpose()
}

pub(super) async fn unsettled(connection: &mut SqliteConnection) -> Attempt<Vec<StoredSnapshot>> {
    sqlx::query(UNSETTLED).fetch_all(connection).await?.iter().map(stored).collect()
}

pub(super) async fn list(
    connection: &mut SqliteConnection,
    filter: &SnapshotFilter,
    cursor: Option<&str>,
    limit: Limit,
) -> Attempt<Page<Snapshot>> {
    let before = cursor.map(read_cursor).transpose()?;
    let rows = page_query(filter, before, limit).build().fetch_all(connection).await?;
    let wanted = limit.get() as usize;
    let mut items = Vec::with_capacity(wanted.min(rows.len()));
    for row in rows.iter().take(wanted) {
        items.push(serde_json::from_str::<Snapshot>(row.try_get(0)?)?);
    }
    let more = rows.len() > wanted;
    let next_cursor = items.last().filter(|_| more).map(|last| write_cursor(last.snapshot_id));
    Ok(Page { items, next_cursor })
}

/// Only what the backend has: a row without that is somebody's work under way.
pub(super) fn page_query(
    filter: &SnapshotFilter,
    before: Option<SnapshotId>,
    limit: Limit,
) -> QueryBuilder<Sqlite> {
    let index = match (filter.sandbox, &filter.owner_key) {
        (Some(_), _) => "snapshots_sandbox",
        (None, Some(_)) => "snapshots_owner",
        (None, None) => "snapshots_taken",
    };
    let mut query = QueryBuilder::new("SELECT doc FROM snapshots INDEXED BY ");
    query.push(index).push(" WHERE taken IS NOT NULL");
    if let Some(sandbox) = filter.sandbox {
        query.push(" AND sandbox_id = ").push_bind(SandboxId::to_string(&sandbox));
    }
    if let Some(owner) = &filter.owner_key {
        query.push(" AND owner_key = ").push_bind(owner.clone());
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
