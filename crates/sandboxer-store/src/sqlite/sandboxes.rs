//! Sandboxes: insert, update, and the reads that the engine works with.

use jiff::Timestamp;
use rusqlite::{Connection, Row};
use sandboxer_core::event::NewEvent;
use sandboxer_core::sandbox::SandboxRecord;
use sandboxer_core::{Error, ErrorKind, Retry, SandboxId, State};

use super::events::Journal;
use super::fault::{Attempt, Fault};
use super::idempotency::{self, Claim};
use super::query::query;
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

pub(super) fn insert(connection: &Connection, journal: &Journal, insert: Insert) -> Attempt<Inserted> {
    let Insert { record, steps, lease, idempotency, facts, books } = insert;
    walk(None, &steps, record.state())?;
    let documents = Documents::of(&record)?;
    if let Some(request) = &idempotency {
        match idempotency::created(connection, request)? {
            Claim::Free => {}
            Claim::Made(id) => {
                let found =
                    get(connection, id)?.ok_or_else(|| Fault::internal("a key without its sandbox"))?;
                if !found.record.was_never_answered() {
                    return Ok(Inserted::Replayed(found));
                }
                idempotency::unlink(connection, request)?;
            }
            Claim::Mismatch => return Ok(Inserted::Mismatch),
        }
    }
    if let Some(found) = reusable(connection, &record)? {
        if let Some(request) = &idempotency {
            idempotency::link(connection, request, found.record.id(), record.sandbox.created_at)?;
        }
        return Ok(Inserted::Reusable(found));
    }
    hosts::require(connection, &record)?;
    let (events, last) = (steps.len() + facts.len(), steps.last().map(|step| &step.event));
    write_row(connection, &record, events, last, &lease, &documents)?;
    write_labels(connection, &record, &documents.labels)?;
    ledger::apply(connection, &record, &books)?;
    journal.record(connection, &record, 0, steps.into_iter().map(|step| step.event).chain(facts))?;
    if let Some(request) = &idempotency {
        idempotency::link(connection, request, record.id(), record.sandbox.created_at)?;
    }
    Ok(Inserted::New(Stored { record, version: 1, lease: Some(lease) }))
}

fn reusable(connection: &Connection, record: &SandboxRecord) -> Attempt<Option<Stored>> {
    let Some(reuse_key) = &record.reuse_key else { return Ok(None) };
    query(REUSABLE).bind(reuse_key).bind(&record.sandbox.config_hash).first(connection, stored)
}

fn write_row(
    connection: &Connection,
    record: &SandboxRecord,
    events: usize,
    last: Option<&NewEvent>,
    lease: &Lease,
    documents: &Documents,
) -> Attempt<()> {
    let sql = "INSERT INTO sandboxes (id, state, version, last_sequence, created_at, expires_at, destroyed_at, \
               reuse_key, config_hash, owner_key, lease_owner, lease_until, labels, doc, handle, spec, bill) \
               VALUES (?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    query(sql)
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
        .run(connection)?;
    Ok(())
}

fn write_labels(connection: &Connection, record: &SandboxRecord, labels: &str) -> Attempt<()> {
    if record.sandbox.labels.is_empty() {
        return Ok(());
    }
    query("INSERT INTO sandbox_labels (id, name, value, living) SELECT ?, key, value, ? FROM json_each(?)")
        .bind(record.id().to_string())
        .bind(record.state().is_living())
        .bind(labels)
        .run(connection)?;
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
    fn of(row: &Row<'_>) -> Attempt<Self> {
        Ok(Self {
            version: count(row.get(0)?)?,
            state: row.get_ref(1)?.as_str()?.parse()?,
            last_sequence: count(row.get(2)?)?,
            labels: row.get(3)?,
            lease: lease(row.get(4)?, row.get(5)?)?,
        })
    }
}

pub(super) fn update(connection: &Connection, journal: &Journal, update: Update) -> Attempt<Stored> {
    let Update { record, expected_version, steps, facts, lease, books } = update;
    let documents = Documents::of(&record)?;
    let id = record.id().to_string();
    let sql =
        "SELECT version, state, last_sequence, labels, lease_owner, lease_until FROM sandboxes WHERE id = ?";
    let before = query(sql).bind(&id).first(connection, Before::of)?.ok_or_else(|| {
        Error::new(ErrorKind::SandboxNotFound, format!("there is no sandbox `{id}`"))
            .with_context("sandbox", &id)
    })?;
    if before.version != expected_version {
        return Err(conflict(&id, expected_version, before.version).into());
    }
    walk(Some(before.state), &steps, record.state())?;
    hosts::require(connection, &record)?;
    let lease = match lease {
        LeaseChange::Keep => before.lease,
        LeaseChange::Take(lease) => Some(lease),
        LeaseChange::Release => None,
    };
    let new_events: Vec<NewEvent> = steps.into_iter().map(|step| step.event).chain(facts).collect();
    let last_sequence = before.last_sequence + new_events.len() as u64;
    query(
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
    .run(connection)?;
    if before.labels != documents.labels {
        query("DELETE FROM sandbox_labels WHERE id = ?").bind(&id).run(connection)?;
        write_labels(connection, &record, &documents.labels)?;
    } else if before.state.is_living() && !record.state().is_living() && !record.sandbox.labels.is_empty() {
        query("UPDATE sandbox_labels SET living = 0 WHERE id = ?").bind(&id).run(connection)?;
    }
    ledger::apply(connection, &record, &books)?;
    journal.record(connection, &record, before.last_sequence, new_events)?;
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

pub(super) fn get(connection: &Connection, id: SandboxId) -> Attempt<Option<Stored>> {
    query(GET).bind(id.to_string()).first(connection, stored)
}

pub(super) fn living(connection: &Connection) -> Attempt<Vec<Stored>> {
    query(LIVING).all(connection, stored)
}

pub(super) fn sharing(connection: &Connection, reuse_key: &str) -> Attempt<Vec<Stored>> {
    query(SHARING).bind(reuse_key).all(connection, stored)
}

pub(super) fn overdue(connection: &Connection, now: Timestamp) -> Attempt<Vec<Stored>> {
    query(OVERDUE).bind(micros(now)).all(connection, stored)
}

/// The version stays: a sign of life must not collide with the work that it stands for.
pub(super) fn renew_lease(
    connection: &Connection,
    id: SandboxId,
    owner: &str,
    until: Timestamp,
) -> Attempt<bool> {
    let done = query("UPDATE sandboxes SET lease_until = ? WHERE id = ? AND lease_owner = ?")
        .bind(micros(until))
        .bind(id.to_string())
        .bind(owner)
        .run(connection)?;
    Ok(done > 0)
}
