//! Hosts: the machines that self-hosted extensions place sandboxes on.

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::duration::Dur;
use crate::error::{Error, ErrorKind, Result};

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

/// How a host has answered lately. A host that failed is left alone for a while, longer with every failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HostHealth {
    /// Failures in a row.
    #[serde(default)]
    pub failures: u32,
    /// Nothing new is placed on it before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub cooled_until: Option<Timestamp>,
    /// What failed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When somebody looked last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub checked_at: Option<Timestamp>,
    /// How long its last answer took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
}

/// What was learned about a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostSign {
    Answered { latency_ms: Option<u64> },
    Failed { reason: String },
}

impl HostHealth {
    /// The first rest after a failure; each further one doubles it.
    pub const FIRST_REST: Dur = Dur::from_secs(30);
    pub const LONGEST_REST: Dur = Dur::from_secs(600);
    const LONGEST_REASON: usize = 500;

    /// The rest that this many failures in a row earn.
    pub fn rest(failures: u32) -> Dur {
        let doubled = Self::FIRST_REST.as_millis().saturating_mul(1 << failures.saturating_sub(1).min(16));
        Dur::from_millis(doubled.min(Self::LONGEST_REST.as_millis()))
    }

    /// The health after one more sign. The engine's own machine is never left alone: whoever fails there says so.
    pub fn after(&self, sign: &HostSign, is_local: bool, now: Timestamp) -> Self {
        match sign {
            HostSign::Answered { latency_ms } => {
                Self { checked_at: Some(now), latency_ms: latency_ms.or(self.latency_ms), ..Self::default() }
            }
            HostSign::Failed { reason } => {
                let failures = self.failures.saturating_add(1);
                Self {
                    failures,
                    cooled_until: (!is_local).then(|| Self::rest(failures).after(now)),
                    reason: Some(reason.chars().take(Self::LONGEST_REASON).collect()),
                    checked_at: Some(now),
                    latency_ms: self.latency_ms,
                }
            }
        }
    }

    /// Until when it is left alone, if that is not over.
    pub fn resting(&self, now: Timestamp) -> Option<Timestamp> {
        self.cooled_until.filter(|until| *until > now)
    }
}

/// What the living sandboxes of one host were promised.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HostLoad {
    pub sandboxes: u32,
    pub cpu: f64,
    pub memory_mb: u64,
    pub disk_mb: u64,
}

/// A host's name: what `--host`, profiles and rows say.
pub fn validate_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) || name.starts_with(['-', '.']) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("`{}` is not the name of a host", crate::suggest::printable(name)),
        )
        .with_hint("letters, digits, `.`, `_` and `-`, at most 64, beginning with a letter or a digit"));
    }
    Ok(())
}

/// Where extensions look a host up by its name. `HostNotFound` when it is not registered.
#[async_trait]
pub trait HostDirectory: Send + Sync + 'static {
    async fn host(&self, name: &str) -> Result<Host>;
}
