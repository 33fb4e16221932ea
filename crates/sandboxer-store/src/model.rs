//! The values that go in and out of a store beside the core's own.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandboxer_core::event::{Event, NewEvent};
use sandboxer_core::host::{Host, HostHealth};
use sandboxer_core::sandbox::SandboxRecord;
use sandboxer_core::snapshot::SnapshotRecord;
use sandboxer_core::{Actor, KeyId, SandboxId, State};

use crate::ledger::Books;

/// A record as it was read, with what is needed to write it back safely.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub record: SandboxRecord,
    /// Grows by one with every write; a write names the version that it read.
    pub version: u64,
    pub lease: Option<Lease>,
}

/// Who is working on a sandbox, and until when that is believed without a word from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Machine, boot, process and its start time: see the engine's `owner`.
    pub owner: String,
    pub until: Timestamp,
}

/// One legal step of the lifecycle with its event.
#[derive(Clone, Debug)]
pub struct Step {
    pub to: State,
    pub event: NewEvent,
}

/// A new sandbox. Everything in it is written in one transaction.
#[derive(Clone, Debug)]
pub struct Insert {
    /// Its state is that of the last step.
    pub record: SandboxRecord,
    /// The first step is `requested`.
    pub steps: Vec<Step>,
    pub lease: Lease,
    pub idempotency: Option<Idempotency>,
    /// Other facts to record.
    pub facts: Vec<NewEvent>,
    pub books: Books,
}

/// What became of an insert.
#[derive(Clone, Debug, PartialEq)]
pub enum Inserted {
    New(Stored),
    /// A living sandbox with the same reuse key and configuration is there already.
    Reusable(Stored),
    /// The idempotency key came before with the same body and made this one. A create that was cancelled or whose maker
    /// died answered nobody: once it is destroyed, its key is free again.
    Replayed(Stored),
    /// The idempotency key came before with another body.
    Mismatch,
}

/// The caller's key, within the caller, and the hash of what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The API key's id or `local`, and the operation.
    pub scope: String,
    pub key: String,
    pub body_hash: String,
}

/// A change of an existing sandbox, in one transaction.
#[derive(Clone, Debug)]
pub struct Update {
    pub record: SandboxRecord,
    /// What was read; another version in the store is a `Conflict`.
    pub expected_version: u64,
    /// Legal steps from the stored state to the record's; empty when the state stays.
    pub steps: Vec<Step>,
    /// Other facts to record.
    pub facts: Vec<NewEvent>,
    pub lease: LeaseChange,
    pub books: Books,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseChange {
    Keep,
    Take(Lease),
    Release,
}

/// Which sandboxes to list, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub state: Option<State>,
    /// All of these labels.
    pub labels: BTreeMap<String, String>,
    /// Also the destroyed ones. A `state` alone decides; this is for listings without one.
    pub all: bool,
    /// Only those of this key.
    pub owner_key: Option<String>,
}

/// Which events, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    pub subject: Option<SandboxId>,
    /// Only sandboxes of this key.
    pub owner_key: Option<String>,
}

/// An event with its place in the order of all events of the store.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedEvent {
    pub position: i64,
    pub event: Event,
}

/// One event on its way to one sink.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    pub id: i64,
    pub sink: String,
    pub event: Event,
    /// How often it was tried before.
    pub attempts: u32,
    /// Since when it waits.
    pub queued_at: Timestamp,
}

/// What is still to be delivered to a sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboxStats {
    pub pending: u64,
    pub oldest: Option<Timestamp>,
    pub last_error: Option<String>,
    /// When the next try is due.
    pub next_at: Option<Timestamp>,
}

/// What the store says to an idempotent request other than a create.
#[derive(Clone, Debug, PartialEq)]
pub enum Replay {
    /// First time: go on, then call `idempotency_finish`.
    New,
    /// Done before: this was the answer.
    Done { status: u16, body: String },
    /// The first one is still under way.
    InFlight,
    /// Another body under the same key.
    Mismatch,
}

/// A host with what was learned about it.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct HostRecord {
    pub host: Host,
    pub health: HostHealth,
    /// What it said about itself when it was looked at last.
    pub facts: Option<serde_json::Value>,
    /// Grows by one with every write.
    pub version: u64,
}

impl HostRecord {
    /// A host of which nothing was learned yet.
    pub fn new(host: Host) -> Self {
        Self { host, health: HostHealth::default(), facts: None, version: 0 }
    }
}

/// A snapshot as it was read, with what is needed to write it back safely.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredSnapshot {
    pub record: SnapshotRecord,
    /// Grows by one with every write; a write names the version that it read.
    pub version: u64,
    /// It goes as soon as nobody works with it.
    pub doomed: bool,
    pub lease: Option<Lease>,
}

/// Which snapshots to list, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotFilter {
    /// Only those of this sandbox.
    pub sandbox: Option<SandboxId>,
    /// Only those of this key.
    pub owner_key: Option<String>,
}

/// An API key without its secret.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct KeyRecord {
    pub key_id: KeyId,
    pub name: String,
    pub actor: Actor,
    /// Who pays for what it makes.
    pub organisation: String,
    pub workspace: String,
    /// SHA-256 of the secret, in hexadecimal.
    pub hash: String,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}
