//! The marks that find our objects in the engine again.

use std::collections::HashMap;

/// The sandbox or snapshot that something belongs to.
pub(crate) const TAG: &str = "dev.sandboxer.tag";
/// What the object is for: one of the kinds below.
pub(crate) const KIND: &str = "dev.sandboxer.kind";
/// The effective configuration.
pub(crate) const CONFIG_HASH: &str = "dev.sandboxer.config-hash";
pub(crate) const EXPIRES_AT: &str = "dev.sandboxer.expires-at";
/// The user that commands run as.
pub(crate) const USER: &str = "dev.sandboxer.user";
/// The process that made it, which tells an abandoned container from one that is about to start.
pub(crate) const MAKER: &str = "dev.sandboxer.maker";
/// The content hash of an imported root file system.
pub(crate) const ROOTFS: &str = "dev.sandboxer.rootfs";
/// How large the workspace of a snapshot is.
pub(crate) const SIZE: &str = "dev.sandboxer.size";

pub(crate) const KIND_SANDBOX: &str = "sandbox";
/// Never started: it only holds a volume or a layer while it is filled.
pub(crate) const KIND_HELPER: &str = "helper";

/// The name of a sandbox's container.
pub(crate) fn container_name(tag: &str) -> String {
    format!("sandboxer-{tag}")
}

/// The label filter of the engine's listings.
pub(crate) fn filter(label: &str) -> HashMap<String, Vec<String>> {
    HashMap::from([("label".to_owned(), vec![label.to_owned()])])
}

/// Tags become names of containers and images; anything else than our own ids is refused before it gets there.
pub(crate) fn is_tag(tag: &str) -> bool {
    !tag.is_empty()
        && tag.len() <= 100
        && tag.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}
