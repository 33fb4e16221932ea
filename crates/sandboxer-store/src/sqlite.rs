//! The embedded store: one SQLite file in WAL mode that several processes use at once.
//!
//! Each process has one connection that writes, because SQLite lets one write at a time anyway and a queue in the
//! process is fairer than its polling, and a few that only read. What an operation does is a plain function of a
//! connection; whether it is a transaction that writes or a read is decided here.

mod connection;
mod dead;
mod events;
mod fault;
mod hosts;
mod hubs;
mod idempotency;
mod identity;
mod keys;
mod ledger;
mod list;
mod memory;
mod outbox;
mod outgoing;
#[cfg(test)]
mod plans;
mod prune;
mod query;
mod rows;
mod sandboxes;
mod schema;
mod snapshots;
#[cfg(test)]
mod trouble;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::Connection;
use sandboxer_core::event::NewEvent;
use sandboxer_core::host::{Host, HostLoad, HostSign};
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::snapshot::{Snapshot, SnapshotRecord, Taken};
use sandboxer_core::{EventId, KeyId, Result, SandboxId, SnapshotId};
use tokio::runtime::RuntimeFlavor;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::model::{
    Delivery, EventFilter, Filter, HostRecord, Idempotency, Insert, Inserted, KeyRecord, Lease, OutboxStats,
    PlacedEvent, Replay, SnapshotFilter, Stored, StoredSnapshot, Update,
};
use crate::outgoing::Outlet;
use crate::store::Store;

use connection::{PATIENCE, Readers, Tidy, Writer};
use events::Journal;
use fault::{Attempt, Fault};
use identity::Identity;

/// What a process says about itself when it opens the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreOptions {
    /// The `source` of every event that this process records.
    pub source: String,
    /// Hubs that this process was told of. The store remembers them, until they are forgotten.
    pub hubs: Vec<Outlet>,
}

/// The store in a file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    identity: Identity,
    writer: Arc<Mutex<Writer>>,
    readers: Arc<Readers>,
    journal: Journal,
    /// The hubs that this process was told of.
    own_hubs: Vec<Outlet>,
    tidy: Tidy,
    transfers: ledger::Queue,
}

impl SqliteStore {
    /// Opens the file, which is made, with its directory, when it is not there. Any number of processes may do so at
    /// the same moment.
    pub async fn open(path: &Path, options: StoreOptions) -> Result<Self> {
        // An absolute path stays right when the process changes directory, and SQLite reads no special meaning into it.
        let path = std::path::absolute(path).map_err(|error| fault::from_io(error, "finding", path))?;
        let first = schema::open(&path).await.map_err(|fault| fault.into_error("open", &path))?;
        let store = Self {
            readers: Arc::new(Readers::new(path.clone())),
            writer: Arc::new(Mutex::new(Writer::new(path.clone(), first))),
            journal: Journal::new(options.source),
            own_hubs: options.hubs,
            tidy: Tidy::default(),
            transfers: ledger::Queue::default(),
            identity: Identity::of(&path)?,
            path,
        };
        store.know_hubs(&store.own_hubs).await?;
        Ok(store)
    }

    /// Every process queues for a hub that one of them was told of.
    async fn know_hubs(&self, hubs: &[Outlet]) -> Result<()> {
        if hubs.is_empty() {
            return Ok(());
        }
        let known = self.read("know_hubs", hubs::list)?;
        if hubs.iter().all(|hub| known.contains(hub)) {
            return Ok(());
        }
        self.write("know_hubs", |c| hubs::know(c, hubs)).await
    }

    /// Where the store is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Closes the file. The last process to do so also tidies up its side files. Not needed for safety: a process may
    /// die at any moment.
    pub async fn close(self) {
        drop(self);
    }

    /// Runs one write, as a transaction.
    async fn write<T>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Connection) -> Attempt<T>,
    ) -> Result<T> {
        self.write_within(PATIENCE, operation, work).await
    }

    /// The same, for less than others wait.
    async fn write_within<T>(
        &self,
        patience: Duration,
        operation: &'static str,
        work: impl FnOnce(&Connection) -> Attempt<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + patience;
        let outcome = match tokio::time::timeout_at(deadline, self.writer.lock()).await {
            Ok(mut writer) => writer.transaction(deadline, work).await,
            Err(_) => Err(Fault::Own(fault::locked(&self.path))),
        };
        self.tidy.after_write(&self.readers, &self.writer);
        self.told(operation, outcome)
    }

    /// Runs one read. A process that does one thing at a time, such as the command line, reads on the connection that it
    /// writes with and never opens a second one.
    fn read<T>(&self, operation: &'static str, work: impl FnOnce(&Connection) -> Attempt<T>) -> Result<T> {
        let shared = if self.readers.are_in_use() { None } else { self.writer.try_lock().ok() };
        let outcome = match shared {
            Some(mut writer) => writer.connection().and_then(work),
            None => self.readers.read(work),
        };
        self.told(operation, outcome)
    }

    /// Runs a read that looks at many rows, and lets others have their turn meanwhile.
    fn read_much<T>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Connection) -> Attempt<T>,
    ) -> Result<T> {
        let flavour = tokio::runtime::Handle::try_current().map(|runtime| runtime.runtime_flavor());
        match flavour {
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(|| self.read(operation, work)),
            _ => self.read(operation, work),
        }
    }

    fn told<T>(&self, operation: &'static str, outcome: Attempt<T>) -> Result<T> {
        outcome.map_err(|fault| fault.into_error(operation, &self.path))
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn insert(&self, insert: Insert) -> Result<Inserted> {
        self.write("insert", |c| sandboxes::insert(c, &self.journal, insert)).await
    }

    async fn update(&self, update: Update) -> Result<Stored> {
        self.write("update", |c| sandboxes::update(c, &self.journal, update)).await
    }

    async fn get(&self, id: SandboxId) -> Result<Option<Stored>> {
        self.read("get", |c| sandboxes::get(c, id))
    }

    async fn list(&self, filter: &Filter, cursor: Option<&str>, limit: Limit) -> Result<Page<Sandbox>> {
        self.read_much("list", |c| list::list(c, filter, cursor, limit))
    }

    async fn living(&self) -> Result<Vec<Stored>> {
        self.read_much("living", sandboxes::living)
    }

    async fn sharing(&self, reuse_key: &str) -> Result<Vec<Stored>> {
        self.read_much("sharing", |c| sandboxes::sharing(c, reuse_key))
    }

    async fn overdue(&self, now: Timestamp) -> Result<Vec<Stored>> {
        self.read_much("overdue", |c| sandboxes::overdue(c, now))
    }

    async fn renew_lease(&self, id: SandboxId, owner: &str, until: Timestamp) -> Result<bool> {
        self.write("renew_lease", |c| sandboxes::renew_lease(c, id, owner, until)).await
    }

    async fn events(&self, filter: &EventFilter, after: i64, limit: Limit) -> Result<Vec<PlacedEvent>> {
        self.read_much("events", |c| events::after(c, filter, after, limit))
    }

    async fn event_position(&self, id: EventId) -> Result<Option<i64>> {
        self.read("event_position", |c| events::position(c, id))
    }

    async fn last_position(&self) -> Result<i64> {
        self.read("last_position", events::last_position)
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
        if !self.read("outbox_claim", |c| outbox::is_due(c, sink, now))? {
            return Ok(Vec::new());
        }
        self.write("outbox_claim", |c| outbox::claim(c, sink, owner, now, until, max)).await
    }

    async fn outbox_done(&self, id: i64) -> Result<()> {
        self.write("outbox_done", |c| outbox::done(c, id)).await
    }

    async fn outbox_retry(&self, id: i64, next_at: Timestamp, error: &str) -> Result<()> {
        self.write("outbox_retry", |c| outbox::retry(c, id, next_at, error)).await
    }

    async fn outbox_stats(&self, sink: &str) -> Result<OutboxStats> {
        self.read("outbox_stats", |c| outbox::stats(c, sink))
    }

    async fn idempotency_begin(&self, request: &Idempotency, now: Timestamp) -> Result<Replay> {
        self.write("idempotency_begin", |c| idempotency::begin(c, request, now)).await
    }

    async fn idempotency_finish(&self, request: &Idempotency, answer: Option<(u16, String)>) -> Result<()> {
        self.write("idempotency_finish", |c| idempotency::finish(c, request, answer)).await
    }

    async fn key_insert(&self, key: &KeyRecord) -> Result<()> {
        self.write("key_insert", |c| keys::insert(c, key)).await
    }

    async fn key_list(&self) -> Result<Vec<KeyRecord>> {
        self.read("key_list", keys::list)
    }

    async fn key_find(&self, hash: &str) -> Result<Option<KeyRecord>> {
        self.read("key_find", |c| keys::find(c, hash))
    }

    async fn key_revoke(&self, id: KeyId, now: Timestamp) -> Result<KeyRecord> {
        self.write("key_revoke", |c| keys::revoke(c, id, now)).await
    }

    async fn host_put(&self, host: &Host) -> Result<HostRecord> {
        self.write("host_put", |c| hosts::put(c, host)).await
    }

    async fn host_get(&self, name: &str) -> Result<Option<HostRecord>> {
        self.read("host_get", |c| hosts::find(c, name))
    }

    async fn host_list(&self) -> Result<Vec<HostRecord>> {
        self.read("host_list", hosts::list)
    }

    async fn host_remove(&self, name: &str) -> Result<HostRecord> {
        self.write("host_remove", |c| hosts::remove(c, name)).await
    }

    async fn host_health(
        &self,
        name: &str,
        sign: &HostSign,
        facts: Option<&serde_json::Value>,
        now: Timestamp,
    ) -> Result<HostRecord> {
        self.write("host_health", |c| hosts::health(c, name, sign, facts, now)).await
    }

    async fn host_loads(&self) -> Result<BTreeMap<String, HostLoad>> {
        self.read_much("host_loads", hosts::loads)
    }

    async fn facts(&self, id: SandboxId, facts: Vec<NewEvent>) -> Result<()> {
        self.write("facts", |c| events::facts(c, &self.journal, id, facts)).await
    }

    async fn snapshot_insert(
        &self,
        record: SnapshotRecord,
        doomed: bool,
        lease: Lease,
    ) -> Result<StoredSnapshot> {
        self.write("snapshot_insert", |c| snapshots::insert(c, record, doomed, lease)).await
    }

    async fn snapshot_taken(
        &self,
        before: &StoredSnapshot,
        taken: Taken,
        keep_lease: bool,
        fact: NewEvent,
    ) -> Result<StoredSnapshot> {
        self.write("snapshot_taken", |c| snapshots::taken(c, &self.journal, before, taken, keep_lease, fact))
            .await
    }

    async fn snapshot_claim(
        &self,
        before: &StoredSnapshot,
        doomed: bool,
        lease: Option<Lease>,
    ) -> Result<StoredSnapshot> {
        self.write("snapshot_claim", |c| snapshots::claim(c, before, doomed, lease)).await
    }

    async fn snapshot_remove(&self, before: &StoredSnapshot, fact: Option<NewEvent>) -> Result<()> {
        self.write("snapshot_remove", |c| snapshots::remove(c, &self.journal, before, fact)).await
    }

    async fn snapshot_get(&self, id: SnapshotId) -> Result<Option<StoredSnapshot>> {
        self.read("snapshot_get", |c| snapshots::get(c, id))
    }

    async fn snapshot_list(
        &self,
        filter: &SnapshotFilter,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<Snapshot>> {
        self.read_much("snapshot_list", |c| snapshots::list(c, filter, cursor, limit))
    }

    async fn snapshots_unsettled(&self) -> Result<Vec<StoredSnapshot>> {
        self.read_much("snapshots_unsettled", snapshots::unsettled)
    }

    async fn prune(&self, before: Timestamp) -> Result<u64> {
        let mut gone = 0;
        let mut place = prune::Place::default();
        loop {
            let bite = self.write("prune", |c| prune::bite(c, before, &place)).await?;
            gone += bite.gone;
            match bite.next {
                Some(next) => place = next,
                None => break,
            }
            // Long enough for another process to get its turn: SQLite waits for the lock by polling.
            tokio::time::sleep(prune::PAUSE).await;
        }
        while self.write("prune", |c| prune::idempotency_keys(c, before)).await? {
            tokio::time::sleep(prune::PAUSE).await;
        }
        Ok(gone)
    }

    async fn ping(&self) -> Result<()> {
        self.told("ping", self.identity.check(&self.path))?;
        self.read("ping", schema::ping)
    }
}
