//! Hosts: the machines that self-hosted extensions place sandboxes on.

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// The machine that the engine itself runs on. It is always there and cannot be removed.
pub const LOCAL: &str = "local";

/// One registered placement target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Host {
    pub name: String,
    pub access: HostAccess,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    #[serde(default)]
    pub capacity: HostCapacity,
    #[schema(value_type = String, format = DateTime)]
    pub added_at: Timestamp,
}

impl Host {
    /// The machine of the engine itself, with no limits but its own.
    pub fn local() -> Self {
        Self {
            name: LOCAL.to_owned(),
            access: HostAccess::Local,
            labels: BTreeMap::new(),
            region: None,
            capacity: HostCapacity::default(),
            added_at: Timestamp::UNIX_EPOCH,
        }
    }

    pub fn is_local(&self) -> bool {
        matches!(self.access, HostAccess::Local)
    }
}

/// How commands get to the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum HostAccess {
    Local,
    Ssh(SshAccess),
}

/// An SSH endpoint whose key was confirmed when it was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SshAccess {
    /// A name or an address, without user and port.
    pub address: String,
    pub port: u16,
    pub user: String,
    /// The file of the private key; without it the agent and the user's own defaults are asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_file: Option<String>,
    /// Pinned public keys, each `ssh-ed25519 AAAA…`. Any other key is refused.
    pub host_keys: Vec<String>,
}

/// What may be placed on a host; absent is no limit of ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostCapacity {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandboxes: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
}

/// Where extensions look a host up by its name. `HostNotFound` when it is not registered.
#[async_trait]
pub trait HostDirectory: Send + Sync + 'static {
    async fn host(&self, name: &str) -> Result<Host>;
}
