//! What the extension can be told.

use std::path::PathBuf;

use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_runtime::{LauncherExe, ProbeOverrides};

/// Where sandboxes live on disk and which executable launches them. There is no secret in it.
#[derive(Clone, Debug)]
pub struct NativeConfig {
    pub root: PathBuf,
    pub launcher: LauncherExe,
    /// How many sandboxes are made in advance; none unless something stays to hold them.
    pub warm: usize,
    /// Kernel features to treat as absent.
    pub overrides: ProbeOverrides,
}

impl NativeConfig {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            launcher: LauncherExe::CurrentExe,
            warm: 0,
            overrides: ProbeOverrides::default(),
        }
    }

    /// Switches features off by name, as `SANDBOXER_PROBE_OFF=landlock,seccomp` does.
    pub fn without(mut self, features: &str) -> Result<Self> {
        for feature in features.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let switch = match feature {
                "user_namespaces" => &mut self.overrides.no_user_namespaces,
                "network_namespaces" => &mut self.overrides.no_network_namespaces,
                "ipc_namespaces" => &mut self.overrides.no_ipc_namespaces,
                "uts_namespaces" => &mut self.overrides.no_uts_namespaces,
                "cgroup_namespaces" => &mut self.overrides.no_cgroup_namespaces,
                "overlay" => &mut self.overrides.no_overlay,
                "landlock" => &mut self.overrides.no_landlock,
                "seccomp" => &mut self.overrides.no_seccomp,
                "cgroups" => &mut self.overrides.no_cgroups,
                "idmapped_mounts" => &mut self.overrides.no_idmapped_mounts,
                unknown => {
                    return Err(Error::new(
                        ErrorKind::InvalidInput,
                        format!("`{}` is not a kernel feature", sandboxer_core::suggest::printable(unknown)),
                    )
                    .with_hint("`sandboxer doctor` lists the features by name"));
                }
            };
            *switch = true;
        }
        Ok(self)
    }
}
