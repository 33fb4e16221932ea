//! Snapshots: point-in-time checkpoints that a sandbox can start from.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{SandboxId, SnapshotId};
use crate::ledger::Seat;
use crate::spec::SandboxSpec;

/// What a user sees of a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Snapshot {
    pub snapshot_id: SnapshotId,
    /// The sandbox it was taken of, which may be gone.
    pub sandbox_id: SandboxId,
    /// `profile.docker-dev@1.0.0`.
    pub profile: String,
    pub extension: String,
    pub host: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// The workspace with whose own key at the provider it was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_key_of: Option<Seat>,
}

/// What the store keeps: the public document, and what is needed to start from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    pub snapshot: Snapshot,
    /// The configuration of the sandbox that it was taken of.
    pub spec: SandboxSpec,
    /// Absent until the extension has answered; the id finds it even then.
    pub taken: Option<Taken>,
    pub owner_key: Option<String>,
}

/// What an extension answers to a snapshot and gets back to start from it or to delete it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    pub snapshot_id: SnapshotId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// The extension's own words; nobody else reads them.
    pub data: serde_json::Value,
}
