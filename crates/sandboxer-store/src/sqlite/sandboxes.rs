//! Sandboxes: insert, update, and the reads that the engine works with.

use jiff::Timestamp;
use sandboxer_core::event::NewEvent;
use sandboxer_core::sandbox::SandboxRecord;
use sandboxer_core::{Error, ErrorKind, Retry, SandboxId, State};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection as _, Row as _};

use super::events::Journal;
use super::fault::{Attempt, Fault};
use super::idempotency::{self, Claim};
use super::rows::{count, lease, micros, select_stored, stored};
use super::{hosts, ledger};
use crate::model::{Insert, Inserted, Lease, LeaseChange, Step, Stored, Update};

// Each names its index: without statistics SQLite may prefer one that fits the destroyed as well.
pub(super) const GET: &str = select_stored!("WHERE id = ?");
pub(super) const LIVING: &str =
    select_stored!("INDEXED BY sandboxes_living WHERE state <> 'destroyed' ORDER BY id");
pub(super) const SHARING: &str = select_stored!(
    "INDEXED BY sandboxes_sharing WHERE reuse_key = ? AND state <> 'destroyed' ORDER BY id DESC"
);
pub(super) const OVERDUE: &str = select_stored!(
    "INDEXED BY sandboxes_overdue \
     WHERE state IN ('ready', 'active', 'paused') AND expires_at <= ? ORDER BY expires_at"
);
pub(super) const REUSABLE: &str = select_stored!(
    "INDEXED BY sandboxes_reuse WHERE reuse_key = ? AND config_hash = ? \
     AND state IN ('requested', 'provisioning', 'ready', 'active', 'paused')"
);

/// The documents of a record as text.
struct Documents {
    labels: String,
    doc: String,
    handle: Option<String>,
    spec: String,
    bill: Option<String>,
}

impl Documents {
    fn of(record: &SandboxRecord) -> Attempt<Self> {
        Ok(Self {
            labels: serde_json::to_string(&record.sandbox.labels)?,
            doc: serde_json::to_string(&record.sandbox)?,
            handle: record.handle.as_ref().map(serde_json::to_string).transpose()?,
            spec: serde_json::to_string(&record.spec)?,
            bill: record.bill.as_ref().map(serde_json::to_string).transpose()?,
        })
    }
}

pub(super) async fn insert(
    connection: &mut SqliteConnection,
    journal: &Journal,
    insert: Insert,
) -> Attempt<Inserted> {
    let Insert { record, steps, lease, idempotency, facts, books } = insert;
    walk(None, &steps, record.state())?;
    let documents = Documents::of(&record)?;
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    if let Some(request) = &idempotency {
        match idempotency::created(&mut tx, request).await? {
            Claim::Free => {}
            Claim::Made(id) => {
                let found =
                    get(&mut tx, id).await?.ok_or_else(|| Fault::internal("a key without its sandbox"))?;
                if !found.record.was_never_answered() {
                    return Ok(Inserted::Replayed(found));
                }
                idempotency::unlink(&mut tx, request).await?;
            }
            Claim::Mismatch => return Ok(Inserted::Mismatch),
        }
    }
    if let Some(found) = reusable(&mut tx, &record).await? {
        if let Some(request) = &idempotency {
            idempotency::link(&mut tx, request, found.record.id(), record.sandbox.created_at).await?;
            tx.commit().await?;
        }
        return Ok(Inserted::Reusable(found));
    }
    hosts::require(&mut tx, &record).await?;
    let (events, last) = (steps.len() + facts.len(), steps.last().map(|step| &step.event));
    write_row(&mut tx, &record, events, last, &lease, &documents).await?;
    write_labels(&mut tx, &record, &documents.labels).await?;
    ledger::apply(&mut tx, &record, &books).await?;
    journal.record(&mut tx, &record, 0, steps.into_iter().map(|step| step.event).chain(facts)).await?;
    if let Some(request) = &idempotency {
        idempotency::link(&mut tx, request, record.id(), record.sandbox.created_at).await?;
    }
    tx.commit().await?;
    Ok(Inserted::New(Stored { record, version: 1, lease: Some(lease) }))
}

async fn reusable(connection: &mut SqliteConnection, record: &SandboxRecord) -> Attempt<Option<Stored>> {
    let Some(reuse_key) = &record.reuse_key else { return Ok(None) };
    let row = sqlx::query(REUSABLE)
        .bind(reuse_key)
        .bind(&record.sandbox.config_hash)
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(stored).transpose()
}

async fn write_row(
    connection: &mut SqliteConnection,
    record: &SandboxRecord,
    events: usize,
    last: Option<&NewEvent>,
    lease: &Lease,
    documents: &Documents,
) -> Attempt<()> {
    let sql = "INSERT INTO sandboxes (id, state, version, last_sequence, created_at, expires_at, destroyed_at, \
               reuse_key, config_hash, owner_key, lease_owner, lease_until, labels, doc, handle, spec, bill) \
               VALUES (?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    sqlx::query(sql)
        .bind(record.id().to_string())
        .bind(record.state().as_str())
        .bind(events as i64)
        .bind(micros(record.sandbox.created_at))
        .bind(micros(record.sandbox.expires_at))
        .bind(destroyed_at(record, last))
        .bind(&record.reuse_key)
        .bind(&record.sandbox.config_hash)
        .bind(&record.owner_key)
        .bind(&lease.owner)
        .bind(micros(lease.until))
        .bind(&documents.labels)
        .bind(&documents.doc)
        .bind(&documents.handle)
        .bind(&documents.spec)
        .bind(&documents.bill)
        .execute(connection)
        .await?;
    Ok(())
}

async fn write_labels(
    connection: &mut SqliteConnection,
    record: &SandboxRecord,
    labels: &str,
) -> Attempt<()> {
    if record.sandbox.labels.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO sandbox_labels (id, name, value, living) SELECT ?, key, value, ? FROM json_each(?)",
    )
    .bind(record.id().to_string())
    .bind(record.state().is_living())
    .bind(labels)
    .execute(connection)
    .await?;
    Ok(())
}

/// What of the stored row an update needs to know.
struct Before {
    version: u64,
    state: State,
    last_sequence: u64,
    labels: String,
    lease: Option<Lease>,
}

impl Before {
    fn of(row: &SqliteRow) -> Attempt<Self> {
        Ok(Self {
            version: count(row.try_get(0)?)?,
            state: row.try_get::<&str, _>(1)?.parse()?,
            last_sequence: count(row.try_get(2)?)?,
            labels: row.try_get(3)?,
            lease: lease(row.try_get(4)?, row.try_get(5)?)?,
        })
    }
}

pub(super) async fn update(
    connection: &mut SqliteConnection,
    journal: &Journal,
    update: Update,
) -> Attempt<Stored> {
    let Update { record, expected_version, steps, facts, lease, books } = update;
    let documents = Documents::of(&record)?;
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let id = record.id().to_string();
    let sql =
        "SELECT version, state, last_sequence, labels, lease_owner, lease_until FROM sandboxes WHERE id = ?";
    let row = sqlx::query(sql).bind(&id).fetch_optional(&mut *tx).await?.ok_or_else(|| {
        Error::new(ErrorKind::SandboxNotFound, format!("there is no sandbox `{id}`"))
            .with_context("sandbox", &id)
    })?;
    let before = Before::of(&row)?;
    if before.version != expected_version {
        return Err(conflict(&id, expected_version, before.version).into());
    }
    walk(Some(before.state), &steps, record.state())?;
    hosts::require(&mut tx, &record).await?;
    let lease = match lease {
        LeaseChange::Keep => before.lease,
        LeaseChange::Take(lease) => Some(lease),
        LeaseChange::Release => None,
    };
    let new_events: Vec<NewEvent> = steps.into_iter().map(|step| step.event).chain(facts).collect();
    let last_sequence = before.last_sequence + new_events.len() as u64;
    sqlx::query(
        "UPDATE sandboxes SET state = ?, version = version + 1, last_sequence = ?, expires_at = ?, \
         destroyed_at = coalesce(destroyed_at, ?), reuse_key = ?, config_hash = ?, owner_key = ?, lease_owner = ?, \
         lease_until = ?, labels = ?, doc = ?, handle = ?, spec = ?, bill = ? WHERE id = ?",
    )
    .bind(record.state().as_str())
    .bind(last_sequence as i64)
    .bind(micros(record.sandbox.expires_at))
    .bind(destroyed_at(&record, new_events.last()))
    .bind(&record.reuse_key)
    .bind(&record.sandbox.config_hash)
    .bind(&record.owner_key)
    .bind(lease.as_ref().map(|lease| lease.owner.as_str()))
    .bind(lease.as_ref().map(|lease| micros(lease.until)))
    .bind(&documents.labels)
    .bind(&documents.doc)
    .bind(&documents.handle)
    .bind(&documents.spec)
    .bind(&documents.bill)
    .bind(&id)
    .execute(&mut *tx)
    .await?;
    if before.labels != documents.labels {
        sqlx::query("DELETE FROM sandbox_labels WHERE id = ?").bind(&id).execute(&mut *tx).await?;
        write_labels(&mut tx, &record, &documents.labels).await?;
    } else if before.state.is_living() && !record.state().is_living() && !record.sandbox.labels.is_empty() {
        sqlx::query("UPDATE sandbox_labels SET living = 0 WHERE id = ?").bind(&id).execute(&mut *tx).await?;
    }
    ledger::apply(&mut tx, &record, &books).await?;
    journal.record(&mut tx, &record, before.last_sequence, new_events).await?;
    tx.commit().await?;
    Ok(Stored { record, version: before.version + 1, lease })
}

fn conflict(id: &str, expected: u64, found: u64) -> Error {
    Error::new(ErrorKind::Conflict, format!("sandbox `{id}` was changed by somebody else"))
        .with_retry(Retry::Temporary)
        .with_hint("read it again and repeat the request")
        .with_context("expected_version", expected.to_string())
        .with_context("found_version", found.to_string())
}

/// Follows the steps along the legal edges and checks that they end where the record says.
fn walk(from: Option<State>, steps: &[Step], end: State) -> Attempt<()> {
    let mut state = from;
    for step in steps {
        state = Some(match state {
            Some(state) => state.step(step.to)?,
            None if step.to == State::Requested => State::Requested,
            None => {
                let message = format!("a sandbox begins as requested and not as {}", step.to);
                return Err(Error::new(ErrorKind::IllegalState, message)
                    .with_context("to", step.to.as_str())
                    .into());
            }
        });
    }
    match state {
        Some(state) if state == end => Ok(()),
        Some(state) => Err(Fault::internal(format!("the steps end in {state} and the record says {end}"))),
        None => Err(Fault::internal("a sandbox without a first step")),
    }
}

/// When it became destroyed, for pruning; the event's time where the document does not say.
fn destroyed_at(record: &SandboxRecord, last: Option<&NewEvent>) -> Option<i64> {
    let moment = record.sandbox.destroyed_at.or(last.map(|event| event.time))?;
    (!record.state().is_living()).then(|| micros(moment))
}

pub(super) async fn get(connection: &mut SqliteConnection, id: SandboxId) -> Attempt<Option<Stored>> {
    let row = sqlx::query(GET).bind(id.to_string()).fetch_optional(connection).await?;
    row.as_ref().map(stored).transpose()
}

pub(super) async fn living(connection: &mut SqliteConnection) -> Attempt<Vec<Stored>> {
    sqlx::query(LIVING).fetch_all(connection).await?.iter().map(stored).collect()
}

pub(super) async fn sharing(connection: &mut SqliteConnection, reuse_key: &str) -> Attempt<Vec<Stored>> {
    sqlx::query(SHARING).bind(reuse_key).fetch_all(connection).await?.iter().map(stored).collect()
}

pub(super) async fn overdue(connection: &mut SqliteConnection, now: Timestamp) -> Attempt<Vec<Stored>> {
    sqlx::query(OVERDUE).bind(micros(now)).fetch_all(connection).await?.iter().map(stored).collect()
}

/// The version stays: a sign of life must not collide with the work that it stands for.
pub(super) async fn renew_lease(
    connection: &mut SqliteConnection,
    id: SandboxId,
    owner: &str,
    until: Timestamp,
) -> Attempt<bool> {
    let done = sqlx::query("UPDATE sandboxes SET lease_until = ? WHERE id = ? AND lease_owner = ?")
        .bind(micros(until))
        .bind(id.to_string())
        .bind(owner)
        .execute(connection)
        .await?;
    Ok(done.rows_affected() > 0)
}
