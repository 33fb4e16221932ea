//! Pins: what keeps a service from redirecting the mount of another one.
//!
//! The engine follows links in a mount's source each time a container starts. A service that may write to a folder
//! could put a link where another service's source is, below that folder, and have that service mount any path of the
//! host. So every source below a writable mount, and every folder on the way to it, is mounted onto itself inside: the
//! kernel lets nobody move or remove what something is mounted on.

use std::collections::BTreeSet;

use serde_json::Map;

use crate::judge::{Mount, Source, Stack};

/// Every path of the bundle that something is mounted from, and the folders above each.
pub(super) fn sources(stack: &Stack) -> Vec<String> {
    let mut all = BTreeSet::new();
    let mounts = stack.services.iter().flat_map(|service| &service.mounts);
    for mount in mounts {
        let Source::Bundle { path, .. } = &mount.source else { continue };
        let mut here = path.as_str();
        while !here.is_empty() {
            all.insert(here.to_owned());
            here = here.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }
    all.into_iter().collect()
}

/// The mounts of a service with the pins that its writable ones need.
pub(super) fn pinned(mounts: &[Mount], sources: &[String]) -> Vec<Mount> {
    let mut out = mounts.to_vec();
    for mount in mounts {
        let Source::Bundle { path, .. } = &mount.source else { continue };
        if mount.read_only {
            continue;
        }
        for source in sources {
            let below = match path.is_empty() {
                true => Some(source.as_str()),
                false => source.strip_prefix(path.as_str()).and_then(|rest| rest.strip_prefix('/')),
            };
            let Some(below) = below.filter(|below| !below.is_empty()) else { continue };
            let target = format!("{}/{below}", mount.target.trim_end_matches('/'));
            // What is mounted there already keeps the place just as well.
            if !out.iter().any(|there| there.target.trim_end_matches('/') == target) {
                out.push(Mount {
                    source: Source::Bundle { path: source.clone(), missing: false },
                    target,
                    read_only: false,
                    rest: Map::new(),
                });
            }
        }
    }
    out
}
