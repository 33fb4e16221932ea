//! What consumers send: the create request and the exec request, with their bounds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::actor::Consumer;
use crate::duration::Dur;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::{Command, ExecSpec, TtySize, is_env_name};
use crate::id::ExecId;
use crate::money::Money;
use crate::profile::{RouteSpec, Scope, WorkspaceAccess, WorkspaceMode};

/// The profile that a create without arguments means.
pub const DEFAULT_PROFILE: &str = "profile.sandbox-canary";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateRequest {
    /// `profile.agent-dev` or `profile.agent-dev@1.0.0`; the canary when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceRequest>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, String>,
    #[serde(default)]
    pub setup_metadata: SetupMetadata,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Dur>,
    #[serde(default)]
    pub consumer: Consumer,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<RouteSpec>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Plain variables, visible inside; not a place for secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Only this extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<String>,
    /// Only this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The most that the whole TTL may cost; the same as `route.constraints.max_cost_total`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<Money>,
    /// Start even if a required isolation control is missing; recorded and shown wherever the sandbox is.
    #[serde(default)]
    pub allow_degraded: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<WorkspaceMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<WorkspaceAccess>,
    /// The folder that the workspace starts with, on the machine that runs the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetupMetadata {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions_ref: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_refs: Vec<String>,
}

impl CreateRequest {
    const MAX_ENTRIES: usize = 64;
    const MAX_TEXT: usize = 4_096;

    pub fn profile_name(&self) -> &str {
        self.profile.as_deref().unwrap_or(DEFAULT_PROFILE)
    }

    /// Bounds of every free field, and names that can be carried.
    pub fn validate(&self) -> Result<()> {
        let refuse = |why: String| Err(Error::new(ErrorKind::InvalidInput, why));
        for (what, map) in [("labels", &self.labels), ("inputs", &self.inputs), ("env", &self.env)] {
            if map.len() > Self::MAX_ENTRIES {
                return refuse(format!("`{what}` has more than {} entries", Self::MAX_ENTRIES));
            }
            for (key, value) in map {
                if key.is_empty() || key.len() > 128 || key.chars().any(char::is_control) {
                    return refuse(format!("`{what}` has a key that is empty, too long or not printable"));
                }
                if value.len() > Self::MAX_TEXT || value.contains('\0') {
                    return refuse(format!(
                        "`{what}.{key}` is longer than {} bytes or contains NUL",
                        Self::MAX_TEXT
                    ));
                }
            }
        }
        if let Some(name) = self.env.keys().find(|name| !is_env_name(name)) {
            return refuse(format!("`{}` is not a variable name", crate::suggest::printable(name)));
        }
        let consumer = &self.consumer;
        for text in
            [&consumer.harness, &consumer.agent_id, &consumer.session_id, &consumer.run_id, &consumer.job_id]
                .into_iter()
                .flatten()
        {
            if text.is_empty() || text.len() > 256 || text.chars().any(char::is_control) {
                return refuse(
                    "`consumer` has a value that is empty, longer than 256 bytes or not printable".into(),
                );
            }
        }
        if let Some(route) = &self.route {
            route.validate()?;
        }
        if self.max_cost.is_some_and(|cost| cost < Money::ZERO) {
            return refuse("`max_cost` is negative".into());
        }
        if self.ttl == Some(Dur::ZERO) {
            return refuse("a TTL of zero would end the sandbox before it starts".into());
        }
        Ok(())
    }
}

/// The body of `POST …/execs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
    pub command: Command,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Text for stdin, followed by its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Dur>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default)]
    pub tty: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tty_size: Option<TtySize>,
    #[serde(default)]
    pub background: bool,
}

impl ExecRequest {
    pub fn new(command: Command) -> Self {
        Self {
            command,
            cwd: None,
            env: BTreeMap::new(),
            stdin: None,
            timeout: None,
            user: None,
            tty: false,
            tty_size: None,
            background: false,
        }
    }

    /// The validated spec, under a new id.
    pub fn to_spec(&self, exec_id: ExecId, stdin: bool) -> Result<ExecSpec> {
        let spec = ExecSpec {
            exec_id,
            argv: self.command.argv(),
            cwd: self.cwd.clone(),
            env: self.env.clone(),
            user: self.user.clone(),
            timeout: self.timeout,
            tty: self.tty.then(|| self.tty_size.unwrap_or_default()),
            stdin,
        };
        spec.validate()?;
        Ok(spec)
    }
}
