//! The store's contract. Every method is one transaction; errors are the core's, kind `StoreFailed` unless said otherwise.

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::event::NewEvent;
use sandboxer_core::host::{Host, HostLoad, HostSign};
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::snapshot::{Snapshot, SnapshotRecord, Taken};
use sandboxer_core::{EventId, KeyId, Result, SandboxId, SnapshotId};

use crate::ledger::Ledger;
use crate::memory::RouteMemory;
use crate::model::{
    Delivery, EventFilter, Filter, HostRecord, Idempotency, Insert, Inserted, KeyRecord, Lease, OutboxStats,
    PlacedEvent, Replay, SnapshotFilter, Stored, StoredSnapshot, Update,
};
use crate::outgoing::Outgoing;

#[async_trait]
pub trait Store: Ledger + RouteMemory + Outgoing + Send + Sync + 'static {
    /// Writes a new sandbox with its first events, its lease and its idempotency key, or tells why not.
    async fn insert(&self, insert: Insert) -> Result<Inserted>;

    /// Writes a change. `Conflict` when somebody wrote in between, `IllegalState` for an edge that does not exist,
    /// `SandboxNotFound` when it is not there.
    async fn update(&self, update: Update) -> Result<Stored>;

    async fn get(&self, id: SandboxId) -> Result<Option<Stored>>;

    /// Newest first. The cursor is opaque; a cursor that is not ours is `InvalidInput`.
    async fn list(&self, filter: &Filter, cursor: Option<&str>, limit: Limit) -> Result<Page<Sandbox>>;

    /// Every sandbox that is not destroyed, oldest first.
    async fn living(&self) -> Result<Vec<Stored>>;

    /// Living sandboxes that share this reuse key, newest first.
    async fn sharing(&self, reuse_key: &str) -> Result<Vec<Stored>>;

    /// Sandboxes that are ready, active or paused and whose TTL has ended at `now`, longest ago first.
    async fn overdue(&self, now: Timestamp) -> Result<Vec<Stored>>;

    /// Keeps a lease alive. False when it is no longer ours. The version stays as it is.
    async fn renew_lease(&self, id: SandboxId, owner: &str, until: Timestamp) -> Result<bool>;

    /// Events after a position, oldest first.
    async fn events(&self, filter: &EventFilter, after: i64, limit: Limit) -> Result<Vec<PlacedEvent>>;

    /// Where an event stands in the order of all.
    async fn event_position(&self, id: EventId) -> Result<Option<i64>>;

    /// The position of the newest event; cheap enough to ask several times a second.
    async fn last_position(&self) -> Result<i64>;

    /// Takes up to `max` deliveries that are due, at most one per sandbox (its oldest), until `until`.
    async fn outbox_claim(
        &self,
        sink: &str,
        owner: &str,
        now: Timestamp,
        until: Timestamp,
        max: u32,
    ) -> Result<Vec<Delivery>>;

    async fn outbox_done(&self, id: i64) -> Result<()>;

    /// Gives a delivery back, to be tried again at `next_at`.
    async fn outbox_retry(&self, id: i64, next_at: Timestamp, error: &str) -> Result<()>;

    async fn outbox_stats(&self, sink: &str) -> Result<OutboxStats>;

    /// For idempotent requests other than a create.
    async fn idempotency_begin(&self, request: &Idempotency, now: Timestamp) -> Result<Replay>;

    /// `None` forgets the key, so that a request that had no effect may be sent again.
    async fn idempotency_finish(&self, request: &Idempotency, answer: Option<(u16, String)>) -> Result<()>;

    async fn key_insert(&self, key: &KeyRecord) -> Result<()>;

    /// Newest first, revoked ones included.
    async fn key_list(&self) -> Result<Vec<KeyRecord>>;

    /// The key with this hash, revoked or not.
    async fn key_find(&self, hash: &str) -> Result<Option<KeyRecord>>;

    /// Idempotent; `NotFound` when there is no such key.
    async fn key_revoke(&self, id: KeyId, now: Timestamp) -> Result<KeyRecord>;

    /// Registers a host. `Conflict` when its name is taken.
    async fn host_put(&self, host: &Host) -> Result<HostRecord>;

    async fn host_get(&self, name: &str) -> Result<Option<HostRecord>>;

    /// By name. The engine's own machine is among them only once something was learned about it.
    async fn host_list(&self) -> Result<Vec<HostRecord>>;

    /// Forgets a host. `Conflict` with their names while living sandboxes or snapshots are on it, `HostNotFound` when it
    /// is not there.
    async fn host_remove(&self, name: &str) -> Result<HostRecord>;

    /// Adds a sign of health, and what the host said about itself if it did. `HostNotFound` when it is not there.
    async fn host_health(
        &self,
        name: &str,
        sign: &HostSign,
        facts: Option<&serde_json::Value>,
        now: Timestamp,
    ) -> Result<HostRecord>;

    /// What the living sandboxes of each host were promised.
    async fn host_loads(&self) -> Result<BTreeMap<String, HostLoad>>;

    /// Records facts about a sandbox without a change of it: the version stays, so that nobody's work collides with
    /// them. `SandboxNotFound` when it is not there.
    async fn facts(&self, id: SandboxId, facts: Vec<NewEvent>) -> Result<()>;

    /// Writes down that a snapshot is going to be taken. A `doomed` one goes as soon as its lease is over.
    /// `SandboxNotFound` without its sandbox, `Conflict` when the id is there.
    async fn snapshot_insert(
        &self,
        record: SnapshotRecord,
        doomed: bool,
        lease: Lease,
    ) -> Result<StoredSnapshot>;

    /// The extension has taken it. `Conflict` and `SnapshotNotFound` when somebody changed or removed the row.
    async fn snapshot_taken(
        &self,
        before: &StoredSnapshot,
        taken: Taken,
        keep_lease: bool,
        fact: NewEvent,
    ) -> Result<StoredSnapshot>;

    /// Takes or gives back the right to work on a snapshot, and says whether it goes afterwards.
    async fn snapshot_claim(
        &self,
        before: &StoredSnapshot,
        doomed: bool,
        lease: Option<Lease>,
    ) -> Result<StoredSnapshot>;

    /// The backend has nothing of it any more.
    async fn snapshot_remove(&self, before: &StoredSnapshot, fact: Option<NewEvent>) -> Result<()>;

    async fn snapshot_get(&self, id: SnapshotId) -> Result<Option<StoredSnapshot>>;

    /// Those that were taken, newest first. The cursor is opaque; a cursor that is not ours is `InvalidInput`.
    async fn snapshot_list(
        &self,
        filter: &SnapshotFilter,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<Snapshot>>;

    /// Those that were never taken and those that are to go, oldest first, whoever holds them.
    async fn snapshots_unsettled(&self) -> Result<Vec<StoredSnapshot>>;

    /// Forgets destroyed sandboxes, delivered events and idempotency keys that ended before `before`.
    /// Undelivered events, everything that is not destroyed and what has snapshots stay. Returns how many sandboxes went.
    async fn prune(&self, before: Timestamp) -> Result<u64>;

    /// The store answers; for readiness.
    async fn ping(&self) -> Result<()>;
}
