//! What the kernel offers, as typed outcomes. The probing itself is done by the launcher.

use serde::{Deserialize, Serialize};

/// One feature of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Feature {
    Available { detail: String },
    Missing { reason: String, hint: String },
}

impl Feature {
    pub(crate) fn available(detail: impl Into<String>) -> Self {
        Self::Available { detail: detail.into() }
    }

    pub(crate) fn missing(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Missing { reason: reason.into(), hint: hint.into() }
    }

    pub fn is_available(&self) -> bool {
        matches!(self, Self::Available { .. })
    }
}

/// Which cgroup hierarchy carries the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupVersion {
    V2,
    V1,
    None,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroups {
    pub version: CgroupVersion,
    /// Controllers in which this user may make a cgroup.
    pub writable: Vec<String>,
    pub feature: Feature,
}

/// Every feature the runtime looks at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    pub user_namespaces: Feature,
    pub mount_namespaces: Feature,
    pub pid_namespaces: Feature,
    pub network_namespaces: Feature,
    pub ipc_namespaces: Feature,
    pub uts_namespaces: Feature,
    pub cgroup_namespaces: Feature,
    pub overlay_userxattr: Feature,
    pub landlock: Feature,
    pub landlock_abi: u32,
    pub seccomp: Feature,
    pub cgroups: Cgroups,
    pub uid_range: Feature,
    pub idmapped_mounts: Feature,
    pub disk_quota: Feature,
    pub pidfd: Feature,
    pub clone3: Feature,
}

impl Probe {
    /// Name and outcome of every feature, in the order a reader wants them.
    pub fn features(&self) -> [(&'static str, &Feature); 16] {
        [
            ("user_namespaces", &self.user_namespaces),
            ("mount_namespaces", &self.mount_namespaces),
            ("pid_namespaces", &self.pid_namespaces),
            ("network_namespaces", &self.network_namespaces),
            ("ipc_namespaces", &self.ipc_namespaces),
            ("uts_namespaces", &self.uts_namespaces),
            ("cgroup_namespaces", &self.cgroup_namespaces),
            ("overlay_userxattr", &self.overlay_userxattr),
            ("landlock", &self.landlock),
            ("seccomp", &self.seccomp),
            ("cgroups", &self.cgroups.feature),
            ("uid_range", &self.uid_range),
            ("idmapped_mounts", &self.idmapped_mounts),
            ("disk_quota", &self.disk_quota),
            ("pidfd", &self.pidfd),
            ("clone3", &self.clone3),
        ]
    }
}

/// Switches a feature off, so that the runtime behaves as on a kernel without it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProbeOverrides {
    pub no_user_namespaces: bool,
    pub no_network_namespaces: bool,
    pub no_ipc_namespaces: bool,
    pub no_uts_namespaces: bool,
    pub no_cgroup_namespaces: bool,
    pub no_overlay: bool,
    pub no_landlock: bool,
    pub no_seccomp: bool,
    pub no_cgroups: bool,
    pub no_idmapped_mounts: bool,
}
