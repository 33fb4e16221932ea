//! Which extension fulfils a request, and why the others do not.

use serde::{Deserialize, Serialize};

use crate::capability::Capability;
use crate::profile::{Image, Persistence, Strategy, WorkspaceAccess};
use crate::spec::SandboxSpec;

/// One candidate, accepted or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Offer {
    pub extension: String,
    pub host: String,
    pub accepted: bool,
    pub reason: String,
}

/// The decision with every candidate, kept with the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RouteDecision {
    pub strategy: Strategy,
    pub offers: Vec<Offer>,
    /// Offers that were taken and did not keep their word, in order; the one that did is not among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
}

/// One accepted offer on which the sandbox could not be established.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Attempt {
    pub extension: String,
    pub host: String,
    /// The stable code of the error.
    pub code: String,
    pub reason: String,
}

impl RouteDecision {
    /// The first accepted offer.
    pub fn chosen(&self) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.accepted)
    }

    /// The first accepted offer that was not tried yet.
    pub fn untried(&self) -> Option<&Offer> {
        let tried = |offer: &Offer| {
            self.attempts.iter().any(|past| past.extension == offer.extension && past.host == offer.host)
        };
        self.offers.iter().find(|offer| offer.accepted && !tried(offer))
    }
}

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
