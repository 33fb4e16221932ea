//! The whole schema of a profile after `extends` has been merged and defaults filled in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::duration::Dur;
use crate::isolation::IsolationLevel;

pub use super::route::{Constraints, Hedge, HedgeAfter, RouteSpec, Strategy};

/// `profile.agent-dev`, without its version.
pub type ProfileId = String;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub id: ProfileId,
    /// `MAJOR.MINOR.PATCH`.
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The profile below this one, with or without a version; already merged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<ProfileId>,
    /// The extension it is made for; without it any that fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<String>,
    #[serde(default)]
    #[schema(value_type = String, example = "host")]
    pub image: Image,
    #[serde(default)]
    pub persistence: Persistence,
    #[serde(default)]
    pub isolation: Isolation,
    #[serde(default)]
    pub network: Network,
    #[serde(default)]
    pub workspace: Workspace,
    /// The scope of a request that names none.
    #[serde(default)]
    pub scope_default: Scope,
    #[serde(default)]
    pub ttl: Ttl,
    #[serde(default)]
    pub resources: Resources,
    /// Plain environment of every command; never a place for secrets.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    #[serde(default)]
    pub secrets: Vec<Secret>,
    /// References that the extension resolves at provision.
    #[serde(default)]
    pub secret_refs: Vec<String>,
    #[serde(default)]
    pub mounts: Vec<Mount>,
    #[serde(default)]
    pub setup: Setup,
    #[serde(default)]
    pub requires: Requires,
    #[serde(default)]
    pub route: RouteSpec,
    #[serde(default)]
    pub placement: Placement,
    /// What only `ext.docker` reads.
    #[serde(default)]
    pub docker: DockerOptions,
    /// What only `ext.compose-ssh` reads.
    #[serde(default)]
    pub compose: ComposeOptions,
    /// What only `ext.vm-packer` reads.
    #[serde(default)]
    pub packer: PackerOptions,
    /// Break-glass: each lifts one refusal, and every sandbox shows it as a control that is missing.
    #[serde(default)]
    pub dangerously_allow: Vec<Danger>,
    #[serde(default)]
    pub reachability: ReachabilitySpec,
    #[serde(default)]
    pub metadata: Metadata,
}

impl Profile {
    /// `profile.agent-dev@1.0.0`.
    pub fn reference(&self) -> String {
        format!("{}@{}", self.id, self.version)
    }
}

/// `host` (the host's own tools, read-only, secrets masked), an OCI reference, or a root file system tar.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Image {
    #[default]
    Host,
    RootfsTar(String),
    Oci(String),
}

impl From<String> for Image {
    fn from(text: String) -> Self {
        match text.as_str() {
            "host" => Self::Host,
            path if [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.xz"]
                .iter()
                .any(|end| path.ends_with(end)) =>
            {
                Self::RootfsTar(text)
            }
            _ => Self::Oci(text),
        }
    }
}

impl From<Image> for String {
    fn from(image: Image) -> Self {
        match image {
            Image::Host => "host".into(),
            Image::RootfsTar(text) | Image::Oci(text) => text,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Persistence {
    #[default]
    Ephemeral,
    Persistent,
    Checkpoint,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Isolation {
    pub level: IsolationLevel,
}

impl Default for Isolation {
    fn default() -> Self {
        Self { level: IsolationLevel::Container }
    }
}

/// Deny is the only default there is: what may leave is listed in `egress`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Network {
    #[serde(default)]
    pub default: NetworkDefault,
    #[serde(default)]
    pub egress: Vec<EgressRule>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkDefault {
    #[default]
    Deny,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EgressRule {
    /// A name, `*.` and a name, `*`, an address or a CIDR block.
    pub host: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binaries: Vec<String>,
    /// The name of the secret that goes with the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Workspace {
    #[serde(default)]
    pub mode: WorkspaceMode,
    #[serde(default)]
    pub access: WorkspaceAccess,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceMode {
    /// The original is outside; the sandbox works on a copy that follows it.
    Mirror,
    /// The original is in the sandbox.
    #[default]
    #[serde(alias = "remote")]
    RemoteCanonical,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceAccess {
    None,
    Ro,
    #[default]
    Rw,
}

/// Who shares a sandbox: nobody, the sessions of one agent, or every consumer of the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    #[default]
    Session,
    Agent,
    Shared,
}

impl Scope {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Agent => "agent",
            Self::Shared => "shared",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Ttl {
    /// When the request names none.
    #[serde(default = "Ttl::default_default")]
    pub default: Dur,
    /// The most that a request may ask for.
    #[serde(default = "Ttl::default_max")]
    pub max: Dur,
    /// Ends the sandbox when nothing has run in it for this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_reap: Option<Dur>,
}

impl Ttl {
    fn default_default() -> Dur {
        Dur::from_secs(4 * 3_600)
    }

    fn default_max() -> Dur {
        Dur::from_secs(24 * 3_600)
    }
}

impl Default for Ttl {
    fn default() -> Self {
        Self { default: Self::default_default(), max: Self::default_max(), idle_reap: None }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Processors; fractions are fine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
}

/// A secret by reference. Its value is never in a profile, a row, an event or a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Secret {
    pub name: String,
    /// Where the value is found when the sandbox is provisioned.
    #[serde(rename = "ref")]
    pub reference: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inject: Option<Inject>,
    /// The value itself becomes visible inside.
    #[serde(default)]
    pub expose: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum Inject {
    /// Added outside the sandbox to requests for this host.
    Header { host: String, header: String },
    /// A variable with a placeholder inside, for which the value is put in outside.
    Env { env: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    pub source: String,
    pub target: String,
    #[serde(default)]
    pub access: MountAccess,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MountAccess {
    #[default]
    Ro,
    Rw,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// For people and for extensions that can follow prose; nothing here executes it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    /// Run in order with `sh -c` before the sandbox is ready; the first failure ends the create.
    #[serde(default)]
    pub commands: Vec<String>,
}

/// What any extension must offer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Requires {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<IsolationLevel>,
    #[serde(default)]
    pub gpu: bool,
    #[serde(default)]
    pub snapshot: bool,
    #[serde(default)]
    pub fork: bool,
    #[serde(default)]
    pub pause: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    #[serde(default)]
    pub prefer: Vec<String>,
    #[serde(default)]
    pub fallback: Vec<String>,
    /// Among hosts of the same preference.
    #[serde(default)]
    pub strategy: PlacementStrategy,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlacementStrategy {
    /// The emptiest host first.
    #[default]
    Spread,
    /// The fullest host that still has room first.
    Pack,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DockerOptions {
    /// A runtime that the engine knows, such as `runsc` or `kata`; the engine's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ComposeOptions {
    /// The compose file, relative to the bundle; the usual names when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The service that commands and files go to; the first of the file when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PackerOptions {
    /// The template's file, absolute or relative to the working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Passed to the build; never a place for secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
    /// Files and folders that the template uses: a change in them makes a new image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The account in the image; `root` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_user: Option<String>,
}

/// One refusal that a profile lifts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Danger {
    /// Containers that are privileged, add capabilities or switch confinement off.
    Privileged,
    /// The engine's socket inside.
    DockerSocket,
    /// Mounts of host paths outside the bundle.
    HostPaths,
    /// The host's network, pid or ipc namespace.
    HostNamespaces,
    /// Networks that reach out.
    OpenNetwork,
}

impl Danger {
    pub const ALL: &[(&'static str, Self)] = &[
        ("privileged", Self::Privileged),
        ("docker_socket", Self::DockerSocket),
        ("host_paths", Self::HostPaths),
        ("host_namespaces", Self::HostNamespaces),
        ("open_network", Self::OpenNetwork),
    ];
}

/// How consumers reach the sandbox; owned by the tools named here, not by us.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReachabilitySpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_class: Option<CostClass>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_class: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CostClass {
    SelfHosted,
    SaasMetered,
}
