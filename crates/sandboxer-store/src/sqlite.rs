//! The embedded store: one SQLite file in WAL mode that several processes use at once.
//!
//! Each process has one connection that writes, because SQLite lets one write at a time anyway and a queue in the
//! process is fairer than its polling, and a few that only read. Every write begins with `BEGIN IMMEDIATE`: a
//! transaction that reads first and writes later would fail when another process writes in between.

/// Runs one write on the writing connection, which is replaced when SQLite left it in doubt.
macro_rules! write {
    ($self:ident, $operation:literal, $connection:ident => $body:expr) => {{
        let mut writer = $self.writer.lock().await;
        let outcome = async {
            let $connection = writer.connection().await?;
            $body.await
        }
        .await;
        writer.settle(&outcome);
        drop(writer);
        $self.tidy.after_write(&$self.readers);
        $self.told($operation, outcome)
    }};
}

/// Runs one read on whichever connection is free.
macro_rules! read {
    ($self:ident, $operation:literal, $connection:ident => $body:expr) => {{
        let outcome = async {
            let mut reader = $self.reader().await?;
            let $connection = reader.connection().await?;
            $body.await
        }
        .await;
        $self.told($operation, outcome)
    }};
}

mod connection;
mod dead;
mod direct;
mod events;
mod fault;
mod hosts;
mod idempotency;
mod keys;
mod ledger;
mod list;
mod memory;
mod outbox;
mod outgoing;
#[cfg(test)]
mod plans;
mod prune;
mod rows;
mod sandboxes;
mod schema;
mod snapshots;
#[cfg(test)]
mod trouble;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::event::NewEvent;
use sandboxer_core::host::{Host, HostLoad, HostSign};
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::snapshot::{Snapshot, SnapshotRecord, Taken};
use sandboxer_core::{EventId, KeyId, Result, SandboxId, SnapshotId};
use sqlx::sqlite::SqlitePool;
use tokio::sync::Mutex;

use crate::model::{
    Delivery, EventFilter, Filter, HostRecord, Idempotency, Insert, Inserted, KeyRecord, Lease, OutboxStats,
    PlacedEvent, Replay, SnapshotFilter, Stored, StoredSnapshot, Update,
};
use crate::outgoing::Outlet;
use crate::store::Store;

use connection::{Reader, Tidy, Writer};
use direct::Direct;
use events::Journal;
use fault::Attempt;

/// What a process says about itself when it opens the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreOptions {
    /// The `source` of every event that this process records.
    pub source: String,
    /// Where the events of this process must be delivered, beside the webhooks of the store.
    pub sinks: Vec<Outlet>,
}

/// The store in a file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    writer: Mutex<Writer>,
    readers: SqlitePool,
    journal: Journal,
    outlets: Vec<Outlet>,
    tidy: Tidy,
    direct: Direct,
    transfers: ledger::Queue,
}

impl SqliteStore {
    /// Opens the file, which is made, with its directory, when it is not there. Any number of processes may do so at
    /// the same moment.
    pub async fn open(path: &Path, options: StoreOptions) -> Result<Self> {
        // An absolute path stays right when the process changes directory, and SQLite reads no special meaning into it.
        let path = std::path::absolute(path).map_err(|error| fault::from_io(error, "finding", path))?;
        let connect = connection::options(&path);
        let first = schema::open(&path, &connect).await.map_err(|fault| fault.into_error("open", &path))?;
        Ok(Self {
            readers: connection::readers(&connect),
            writer: Mutex::new(Writer::new(connect, first)),
            journal: Journal::new(options.source, &options.sinks),
            outlets: options.sinks,
            tidy: Tidy::default(),
            direct: Direct::new(path.clone()),
            transfers: ledger::Queue::default(),
            path,
        })
    }

    /// Where the store is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for what is under way and closes the file. The last process to do so also tidies up its side files.
    /// Not needed for safety: a process may die at any moment.
    pub async fn close(self) {
        self.readers.close().await;
        self.writer.into_inner().close().await;
    }

    /// A connection to read on. A process that does one thing at a time, such as the command line, reads on the
    /// connection that it writes with and never opens a second one.
    async fn reader(&self) -> Attempt<Reader<'_>> {
        if self.readers.size() == 0
            && let Ok(writer) = self.writer.try_lock()
        {
            return Ok(Reader::Shared(writer));
        }
        Ok(Reader::Own(self.readers.acquire().await?))
    }

    fn told<T>(&self, operation: &'static str, outcome: Attempt<T>) -> Result<T> {
        outcome.map_err(|fault| fault.into_error(operation, &self.path))
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn insert(&self, insert: Insert) -> Result<Inserted> {
        write!(self, "insert", c => sandboxes::insert(c, &self.journal, insert))
    }

    async fn update(&self, update: Update) -> Result<Stored> {
        write!(self, "update", c => sandboxes::update(c, &self.journal, update))
    }

    async fn get(&self, id: SandboxId) -> Result<Option<Stored>> {
        match self.direct.get(id, sandboxes::GET) {
            Some(stored) => Ok(stored),
            None => read!(self, "get", c => sandboxes::get(c, id)),
        }
    }

    async fn list(&self, filter: &Filter, cursor: Option<&str>, limit: Limit) -> Result<Page<Sandbox>> {
        read!(self, "list", c => list::list(c, filter, cursor, limit))
    }

    async fn living(&self) -> Result<Vec<Stored>> {
        read!(self, "living", c => sandboxes::living(c))
    }

    async fn sharing(&self, reuse_key: &str) -> Result<Vec<Stored>> {
        read!(self, "sharing", c => sandboxes::sharing(c, reuse_key))
    }

    async fn overdue(&self, now: Timestamp) -> Result<Vec<Stored>> {
        read!(self, "overdue", c => sandboxes::overdue(c, now))
    }

    async fn renew_lease(&self, id: SandboxId, owner: &str, until: Timestamp) -> Result<bool> {
        write!(self, "renew_lease", c => sandboxes::renew_lease(c, id, owner, until))
    }

    async fn events(&self, filter: &EventFilter, after: i64, limit: Limit) -> Result<Vec<PlacedEvent>> {
        read!(self, "events", c => events::after(c, filter, after, limit))
    }

    async fn event_position(&self, id: EventId) -> Result<Option<i64>> {
        read!(self, "event_position", c => events::position(c, id))
    }

    async fn last_position(&self) -> Result<i64> {
        read!(self, "last_position", c => events::last_position(c))
    }

    async fn outbox_claim(
        &self,
        sink: &str,
        owner: &str,
        now: Timestamp,
        until: Timestamp,
        max: u32,
    ) -> Result<Vec<Delivery>> {
        // Asked several times a second by every process: only take the write lock when there is something to take.
        if !read!(self, "outbox_claim", c => outbox::is_due(c, sink, now))? {
            return Ok(Vec::new());
        }
        write!(self, "outbox_claim", c => outbox::claim(c, sink, owner, now, until, max))
    }

    async fn outbox_done(&self, id: i64) -> Result<()> {
        write!(self, "outbox_done", c => outbox::done(c, id))
    }

    async fn outbox_retry(&self, id: i64, next_at: Timestamp, error: &str) -> Result<()> {
        write!(self, "outbox_retry", c => outbox::retry(c, id, next_at, error))
    }

    async fn outbox_stats(&self, sink: &str) -> Result<OutboxStats> {
        read!(self, "outbox_stats", c => outbox::stats(c, sink))
    }

    async fn idempotency_begin(&self, request: &Idempotency, now: Timestamp) -> Result<Replay> {
        write!(self, "idempotency_begin", c => idempotency::begin(c, request, now))
    }

    async fn idempotency_finish(&self, request: &Idempotency, answer: Option<(u16, String)>) -> Result<()> {
        write!(self, "idempotency_finish", c => idempotency::finish(c, request, answer))
    }

    async fn key_insert(&self, key: &KeyRecord) -> Result<()> {
        write!(self, "key_insert", c => keys::insert(c, key))
    }

    async fn key_list(&self) -> Result<Vec<KeyRecord>> {
        read!(self, "key_list", c => keys::list(c))
    }

    async fn key_find(&self, hash: &str) -> Result<Option<KeyRecord>> {
        read!(self, "key_find", c => keys::find(c, hash))
    }

    async fn key_revoke(&self, id: KeyId, now: Timestamp) -> Result<KeyRecord> {
        write!(self, "key_revoke", c => keys::revoke(c, id, now))
    }

    async fn host_put(&self, host: &Host) -> Result<HostRecord> {
        write!(self, "host_put", c => hosts::put(c, host))
    }

    async fn host_get(&self, name: &str) -> Result<Option<HostRecord>> {
        read!(self, "host_get", c => hosts::find(c, name))
    }

    async fn host_list(&self) -> Result<Vec<HostRecord>> {
        read!(self, "host_list", c => hosts::list(c))
    }

    async fn host_remove(&self, name: &str) -> Result<HostRecord> {
        write!(self, "host_remove", c => hosts::remove(c, name))
    }

    async fn host_health(
        &self,
        name: &str,
        sign: &HostSign,
        facts: Option<&serde_json::Value>,
        now: Timestamp,
    ) -> Result<HostRecord> {
        write!(self, "host_health", c => hosts::health(c, name, sign, facts, now))
    }

    async fn host_loads(&self) -> Result<BTreeMap<String, HostLoad>> {
        read!(self, "host_loads", c => hosts::loads(c))
    }

    async fn facts(&self, id: SandboxId, facts: Vec<NewEvent>) -> Result<()> {
        write!(self, "facts", c => events::facts(c, &self.journal, id, facts))
    }

    async fn snapshot_insert(
        &self,
        record: SnapshotRecord,
        doomed: bool,
        lease: Lease,
    ) -> Result<StoredSnapshot> {
        write!(self, "snapshot_insert", c => snapshots::insert(c, record, doomed, lease))
    }

    async fn snapshot_taken(
        &self,
        before: &StoredSnapshot,
        taken: Taken,
        keep_lease: bool,
        fact: NewEvent,
    ) -> Result<StoredSnapshot> {
        write!(self, "snapshot_taken", c => snapshots::taken(c, &self.journal, before, taken, keep_lease, fact))
    }

    async fn snapshot_claim(
        &self,
        before: &StoredSnapshot,
        doomed: bool,
        lease: Option<Lease>,
    ) -> Result<StoredSnapshot> {
        write!(self, "snapshot_claim", c => snapshots::claim(c, before, doomed, lease))
    }

    async fn snapshot_remove(&self, before: &StoredSnapshot, fact: Option<NewEvent>) -> Result<()> {
        write!(self, "snapshot_remove", c => snapshots::remove(c, &self.journal, before, fact))
    }

    async fn snapshot_get(&self, id: SnapshotId) -> Result<Option<StoredSnapshot>> {
        read!(self, "snapshot_get", c => snapshots::get(c, id))
    }

    async fn snapshot_list(
        &self,
        filter: &SnapshotFilter,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<Snapshot>> {
        read!(self, "snapshot_list", c => snapshots::list(c, filter, cursor, limit))
    }

    async fn snapshots_unsettled(&self) -> Result<Vec<StoredSnapshot>> {
        read!(self, "snapshots_unsettled", c => snapshots::unsettled(c))
    }

    async fn prune(&self, before: Timestamp) -> Result<u64> {
        let mut gone = 0;
        let mut place = prune::Place::default();
        loop {
            let bite = write!(self, "prune", c => prune::bite(c, before, &place))?;
            gone += bite.gone;
            match bite.next {
                Some(next) => place = next,
                None => break,
            }
            // Long enough for another process to get its turn: SQLite waits for the lock by polling.
            tokio::time::sleep(prune::PAUSE).await;
        }
        while write!(self, "prune", c => prune::idempotency_keys(c, before))? {
            tokio::time::sleep(prune::PAUSE).await;
        }
        Ok(gone)
    }

    async fn ping(&self) -> Result<()> {
        read!(self, "ping", c => schema::ping(c))
    }
}
