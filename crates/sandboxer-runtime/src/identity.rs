//! Users: which host ids a sandbox maps to and who an exec runs as.

use crate::error::{Result, RuntimeError};

/// As root, ids 0..65536 inside are these on the host.
///
/// One fixed range for all sandboxes, so that layers and snapshots are shared between them without a
/// change of owner. It lies above the ranges that distributions and systemd hand out and holds no
/// account; sandboxes are kept apart by their namespaces and by directories only root can enter.
pub(crate) const HOST_ID_BASE: u32 = 0x7A00_0000;
pub(crate) const HOST_ID_COUNT: u32 = 65536;

/// Whether this process may give a sandbox the range: it is root, and the range is mapped where it runs.
pub(crate) fn has_range() -> bool {
    rustix::process::geteuid().is_root()
        && range_is_mapped("/proc/self/uid_map")
        && range_is_mapped("/proc/self/gid_map")
}

pub(crate) fn range_is_mapped(map: &str) -> bool {
    let text = std::fs::read_to_string(map).unwrap_or_default();
    let end = u64::from(HOST_ID_BASE) + u64::from(HOST_ID_COUNT);
    text.lines().any(|line| {
        let words: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        matches!(words[..], [first, _, count] if first <= u64::from(HOST_ID_BASE) && first + count >= end)
    })
}

/// The user that execs run as unless they say otherwise.
pub(crate) const DEFAULT_UID: u32 = 1000;
pub(crate) const DEFAULT_USER: &str = "user";

pub(crate) fn validate_user(user: &str) -> Result<()> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':');
    if user.is_empty() || user.len() > 64 || !user.bytes().all(allowed) {
        return Err(RuntimeError::invalid(format!(
            "user `{}` is not a name, uid or uid:gid",
            user.escape_debug()
        )));
    }
    Ok(())
}
