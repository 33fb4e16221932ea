//! What a request needs of any extension, wherever it would run.

use crate::capability::Capability;
use crate::profile::{Image, Persistence, WorkspaceAccess};
use crate::spec::SandboxSpec;

/// Why an extension with this capability cannot fulfil the spec; empty when it can.
pub fn unmet(capability: &Capability, spec: &SandboxSpec) -> Vec<String> {
    let mut out = Vec::new();
    let wanted = spec.requires.isolation.into_iter().chain([spec.isolation.level]).max().unwrap_or_default();
    if capability.isolation < wanted {
        out.push(format!("isolation `{}` is weaker than the required `{wanted}`", capability.isolation));
    }
    let image = match &spec.image {
        Image::Host => (capability.image_host, "`image: host`"),
        Image::Oci(_) => (capability.image_oci, "OCI images"),
        Image::RootfsTar(_) => (capability.image_rootfs_tar, "root file system tars"),
    };
    let needs = [
        image,
        (capability.egress || spec.network.egress.is_empty(), "egress rules"),
        (capability.secrets || (spec.secrets.is_empty() && spec.secret_refs.is_empty()), "secrets"),
        (capability.mounts || spec.mounts.is_empty(), "mounts"),
        (
            capability.workspace_access || spec.workspace.access != WorkspaceAccess::Ro,
            "`workspace.access: ro`",
        ),
        (
            capability.persistence || spec.persistence == Persistence::Ephemeral,
            "`persistence` other than `ephemeral`",
        ),
        (capability.gpu || !(spec.requires.gpu || spec.resources.gpu.is_some_and(|count| count > 0)), "GPUs"),
        (capability.snapshot || !spec.requires.snapshot, "snapshots"),
        (capability.fork || !spec.requires.fork, "fork"),
        (capability.pause || !spec.requires.pause, "pause"),
        (capability.exec || spec.setup.commands.is_empty(), "setup commands"),
    ];
    out.extend(needs.iter().filter(|(met, _)| !met).map(|(_, what)| format!("it does not support {what}")));
    out
}
