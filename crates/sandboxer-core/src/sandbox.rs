//! A sandbox as everybody sees it, and the record that the store keeps of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::actor::Consumer;
use crate::bill::{Bill, Cost};
use crate::duration::Dur;
use crate::error::Failure;
use crate::extension::{CleanupReport, Handle, Reachability};
use crate::id::SandboxId;
use crate::isolation::IsolationReport;
use crate::lifecycle::State;
use crate::profile::{Scope, Workspace};
use crate::route::RouteDecision;
use crate::spec::SandboxSpec;
pub use crate::tariff::Quote;

/// Why a sandbox ended; stored and shown as they are.
pub mod reason {
    pub const REQUESTED: &str = "requested";
    pub const TTL: &str = "ttl";
    pub const IDLE: &str = "idle";
    pub const LOST: &str = "lost";
    pub const CANCELLED: &str = "cancelled";
    /// Whoever was creating it died.
    pub const INTERRUPTED: &str = "interrupted";
    pub const CREATE_FAILED: &str = "create_failed";
    pub const CLEANUP_RETRY: &str = "cleanup_retry";
}

/// What a user sees: the same document from the command line and over HTTP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Sandbox {
    pub sandbox_id: SandboxId,
    pub state: State,
    /// `profile.agent-dev@1.0.0`.
    pub profile: String,
    pub extension: String,
    pub host: String,
    pub scope: Scope,
    /// This answer gives back a sandbox that already lived.
    #[serde(default)]
    pub reused: bool,
    pub isolation: IsolationReport,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reachability: Option<Reachability>,
    pub ttl: Dur,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_reap: Option<Dur>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ready_at: Option<Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub destroyed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub consumer: Consumer,
    pub workspace: Workspace,
    /// What the TTL costs at most.
    pub quote: Quote,
    /// What it did cost, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Why it is in its state, where that is not obvious: `ttl`, `idle`, `requested`, `lost` …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<CleanupReport>,
    /// A living sandbox of the same scope was not reused, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    pub config_hash: String,
    pub route: RouteDecision,
    pub links: Links,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Links {
    #[serde(rename = "self")]
    pub this: String,
    pub events: String,
}

impl Links {
    pub fn of(id: SandboxId) -> Self {
        Self { this: format!("/v1/sandboxes/{id}"), events: format!("/v1/sandboxes/{id}/events") }
    }
}

/// The living sandbox that did not fit, and the keys in which it differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Drift {
    pub previous: SandboxId,
    pub changed: Vec<String>,
}

/// What the store keeps: the public document and what only the engine needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SandboxRecord {
    pub sandbox: Sandbox,
    pub spec: SandboxSpec,
    /// Absent until the extension has answered; the tag finds it even then.
    pub handle: Option<Handle>,
    /// Same for requests that may share a sandbox; absent for scope `session`.
    pub reuse_key: Option<String>,
    /// The key that asked for it; absent for the local admin.
    pub owner_key: Option<String>,
    /// Absent where nothing is charged or metered.
    pub bill: Option<Bill>,
}

impl SandboxRecord {
    pub fn id(&self) -> SandboxId {
        self.sandbox.sandbox_id
    }

    pub fn state(&self) -> State {
        self.sandbox.state
    }

    /// It ended before it was ready because the caller went away or the maker died: nobody was told anything about it.
    pub fn was_never_answered(&self) -> bool {
        let sandbox = &self.sandbox;
        sandbox.state == State::Destroyed
            && sandbox.ready_at.is_none()
            && matches!(sandbox.reason.as_deref(), Some(reason::CANCELLED | reason::INTERRUPTED))
    }
}
