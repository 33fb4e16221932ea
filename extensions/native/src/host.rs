//! Facts about this machine, for `inspect host` and `doctor`.

use sandboxer_core::extension::{CheckItem, CheckReport};
use sandboxer_runtime::{Feature, Probe};
use serde_json::{Value, json};

/// Features without which no sandbox starts, or only with `--allow-degraded`.
const REQUIRED: [&str; 11] = [
    "user_namespaces",
    "mount_namespaces",
    "pid_namespaces",
    "network_namespaces",
    "ipc_namespaces",
    "uts_namespaces",
    "cgroup_namespaces",
    "overlay_userxattr",
    "landlock",
    "seccomp",
    "clone3",
];

pub(crate) fn check(probe: &Probe) -> CheckReport {
    let items: Vec<CheckItem> =
        probe.features().into_iter().map(|(name, feature)| item(name, feature)).collect();
    CheckReport { ok: items.iter().all(|item| item.ok || !item.required), items }
}

fn item(name: &str, feature: &Feature) -> CheckItem {
    let (ok, detail, hint) = match feature {
        Feature::Available { detail } => (true, detail.clone(), None),
        Feature::Missing { reason, hint } => (false, reason.clone(), Some(hint.clone())),
    };
    let hint = hint.filter(|hint| !hint.is_empty());
    CheckItem { name: name.to_owned(), ok, required: REQUIRED.contains(&name), detail, hint }
}

pub(crate) fn facts(probe: &Probe, root: &std::path::Path) -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let uname = rustix::system::uname();
    let memory = |key: &str| {
        let text = read("/proc/meminfo");
        let line =
            text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':').map(str::to_owned))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1_024)
    };
    json!({
        "cpu": {
            "count": std::thread::available_parallelism().map(usize::from).unwrap_or(0),
            "model": read("/proc/cpuinfo").lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name.to_owned())),
            "load": read("/proc/loadavg").split_whitespace().take(3).map(|n| n.to_owned()).collect::<Vec<_>>(),
        },
        "memory": { "total_bytes": memory("MemTotal"), "available_bytes": memory("MemAvailable") },
        "disk": disk(root),
        "kernel": { "release": uname.release().to_string_lossy(), "machine": uname.machine().to_string_lossy() },
        "uptime_seconds": read("/proc/uptime").split('.').next().and_then(|text| text.parse::<u64>().ok()),
        "isolation": probe,
    })
}

/// The file system that carries the sandboxes, or the nearest existing folder above it.
fn disk(root: &std::path::Path) -> Value {
    let Some(there) = root.ancestors().find(|path| path.exists()) else { return Value::Null };
    let Ok(fs) = rustix::fs::statvfs(there) else { return Value::Null };
    json!({ "total_bytes": fs.f_blocks * fs.f_frsize, "available_bytes": fs.f_bavail * fs.f_frsize })
}
