//! Hosts as operators see them and ask for them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandboxer_core::extension::CheckReport;
use sandboxer_core::host::{Host, HostAccess, HostCapacity, HostHealth, HostLoad};
use sandboxer_store::HostRecord;
use serde::{Deserialize, Deserializer, Serialize};

use super::key::PublicKey;

/// A host with how it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HostView {
    /// `local` is the machine of the engine.
    #[schema(example = "local")]
    pub name: String,
    pub local: bool,
    /// `ssh://user@address:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_file: Option<String>,
    /// Of the pinned keys; any other key is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fingerprints: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    pub capacity: HostCapacity,
    /// What its living sandboxes were promised.
    pub load: HostLoad,
    pub health: HostHealth,
    /// Nothing new is placed on it at the moment; `health` says why and until when.
    pub resting: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub added_at: Option<Timestamp>,
}

impl HostView {
    pub(super) fn of(record: HostRecord, load: HostLoad, now: Timestamp) -> Self {
        let HostRecord { host, health, .. } = record;
        let local = host.is_local();
        let Host { name, access, labels, region, capacity, added_at } = host;
        let (address, identity_file, keys) = match access {
            HostAccess::Local => (None, None, Vec::new()),
            HostAccess::Ssh(ssh) => (Some(super::address::write(&ssh)), ssh.identity_file, ssh.host_keys),
        };
        let fingerprints =
            keys.iter().filter_map(|key| Some(PublicKey::parse(key).ok()?.fingerprint().to_owned()));
        Self {
            name,
            local,
            address,
            identity_file,
            fingerprints: fingerprints.collect(),
            labels,
            region,
            capacity,
            load,
            resting: health.resting(now).is_some(),
            health,
            added_at: (!local).then_some(added_at),
        }
    }
}

/// A host to be registered. Without a key or a fingerprint it is refused with those that the host shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewHost {
    pub name: String,
    /// `ssh://user@address:port`.
    #[schema(example = "ssh://ops@10.0.0.4:22")]
    pub address: String,
    /// The private key's file on the machine of the engine; without it the agent and the user's defaults are asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_file: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    #[serde(default)]
    pub capacity: HostCapacity,
    /// Public keys to pin, each `ssh-ed25519 AAAA…`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_keys: Vec<String>,
    /// Of the keys to pin, one or several: the host must show them now.
    #[serde(
        default,
        alias = "fingerprint",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "one_or_many"
    )]
    pub fingerprints: Vec<String>,
    /// Pin whatever the host shows now. Only for networks in which nobody else can answer.
    #[serde(default)]
    pub accept_key: bool,
}

fn one_or_many<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Either::deserialize(from)? {
        Either::One(text) => vec![text],
        Either::Many(texts) => texts,
    })
}

/// What a look at a host found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HostCheck {
    pub host: String,
    /// It answers, it shows its pinned key, and at least one extension can use it.
    pub ok: bool,
    /// How long it took to answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
    /// Why it cannot be used at all: it does not answer, or it shows another key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Each extension that can use this kind of host.
    pub extensions: Vec<ExtensionCheck>,
    pub health: HostHealth,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ExtensionCheck {
    pub extension: String,
    #[serde(flatten)]
    pub report: CheckReport,
}
