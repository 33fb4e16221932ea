//! The effective configuration of one sandbox: the merged profile plus what the request changed.
//!
//! Extensions get this and nothing else. Its hash decides whether a living sandbox may be reused.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::profile::{
    ComposeOptions, Danger, DockerOptions, Image, Isolation, Mount, Network, PackerOptions, Persistence,
    Profile, Requires, Resources, Secret, Setup, Workspace,
};
use crate::request::CreateRequest;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// `profile.agent-dev@1.0.0`.
    pub profile: String,
    pub image: Image,
    pub persistence: Persistence,
    pub isolation: Isolation,
    pub network: Network,
    pub workspace: Workspace,
    /// The folder that the workspace starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_source: Option<String>,
    pub resources: Resources,
    /// Visible to every command inside: the profile's variables, then the request's.
    pub variables: BTreeMap<String, String>,
    pub secrets: Vec<Secret>,
    pub secret_refs: Vec<String>,
    pub mounts: Vec<Mount>,
    pub setup: Setup,
    pub requires: Requires,
    #[serde(default)]
    pub docker: DockerOptions,
    #[serde(default)]
    pub compose: ComposeOptions,
    #[serde(default)]
    pub packer: PackerOptions,
    #[serde(default)]
    pub dangerously_allow: Vec<Danger>,
    pub inputs: BTreeMap<String, String>,
    pub allow_degraded: bool,
}

impl SandboxSpec {
    /// The profile with the request's own words on top.
    pub fn new(profile: &Profile, request: &CreateRequest) -> Self {
        let mut variables = profile.variables.clone();
        variables.extend(request.env.clone());
        let mut secret_refs = profile.secret_refs.clone();
        secret_refs.extend(request.setup_metadata.secret_refs.iter().cloned());
        let mut workspace = profile.workspace.clone();
        if let Some(wanted) = &request.workspace {
            workspace.mode = wanted.mode.unwrap_or(workspace.mode);
            workspace.access = wanted.access.unwrap_or(workspace.access);
        }
        let mut requires = profile.requires.clone();
        requires.isolation = [
            requires.isolation,
            profile.route.constraints.require_isolation,
            request.route.as_ref().and_then(|route| route.constraints.require_isolation),
        ]
        .into_iter()
        .flatten()
        .max();
        Self {
            profile: profile.reference(),
            image: profile.image.clone(),
            persistence: profile.persistence,
            isolation: profile.isolation.clone(),
            network: profile.network.clone(),
            workspace,
            workspace_source: request.workspace.as_ref().and_then(|wanted| wanted.source.clone()),
            resources: profile.resources.clone(),
            variables,
            secrets: profile.secrets.clone(),
            secret_refs,
            mounts: profile.mounts.clone(),
            setup: profile.setup.clone(),
            requires,
            docker: profile.docker.clone(),
            compose: profile.compose.clone(),
            packer: profile.packer.clone(),
            dangerously_allow: profile.dangerously_allow.clone(),
            inputs: request.inputs.clone(),
            allow_degraded: request.allow_degraded,
        }
    }

    fn to_value(&self) -> Result<serde_json::Value> {
        serde_json::to_value(self).map_err(|source| {
            Error::new(ErrorKind::Internal, "a spec cannot be written as JSON").with_source(source)
        })
    }

    /// Equal for equal configurations, whatever the order in which they were written.
    pub fn config_hash(&self) -> Result<String> {
        Ok(crate::hash::of_value(&self.to_value()?))
    }

    /// The top-level keys in which two configurations differ, to tell a user why a sandbox was not reused.
    pub fn differing_keys(&self, other: &Self) -> Result<Vec<String>> {
        let (mine, theirs) = (self.to_value()?, other.to_value()?);
        let Some(keys) = mine.as_object() else { return Ok(Vec::new()) };
        Ok(keys.keys().filter(|key| mine.get(*key) != theirs.get(*key)).cloned().collect())
    }
}
