//! Isolation: what was asked for, and what was really enforced.

use serde::{Deserialize, Serialize};

/// How strong the boundary is. Ordered from weak to strong.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum IsolationLevel {
    /// No boundary of its own on the machine that runs it, only a network between.
    #[default]
    Network,
    /// Kernel policy around ordinary processes.
    Policy,
    /// Namespaces, a root of its own and resource limits on a shared kernel.
    Container,
    /// A kernel of its own behind a virtual machine monitor.
    Microvm,
}

impl IsolationLevel {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Policy => "policy",
            Self::Container => "container",
            Self::Microvm => "microvm",
        }
    }
}

impl std::fmt::Display for IsolationLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What became of one control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Enforced,
    /// A weaker form is in force; the detail says which.
    Degraded,
    Missing,
}

/// One control (a namespace, a filter, a limit) and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Control {
    pub name: String,
    pub outcome: Outcome,
    pub detail: String,
}

/// Declared and effective isolation of one sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct IsolationReport {
    /// What the profile asked for.
    pub declared: IsolationLevel,
    /// What the backend gave; absent until it is provisioned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<IsolationLevel>,
    pub controls: Vec<Control>,
    /// Names of the controls that are not fully enforced.
    pub missing: Vec<String>,
    /// A required control is missing and `allow_degraded` let the sandbox start all the same.
    #[serde(default)]
    pub degraded: bool,
}
