//! What a killed process may leave: processes, folders, cgroups, and what the pretended provider knows.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::rig::Home;

#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Processes that hold or see anything of this home: supervisors by their lock, inits by their mounts.
pub(crate) fn processes(home: &Path) -> Vec<String> {
    let home = home.to_str().unwrap();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if pid.parse::<u32>().is_err() || pid == std::process::id().to_string() {
            continue;
        }
        let mounts = std::fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default();
        let descriptors = std::fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        let holds = descriptors
            .filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .any(|link| link.starts_with(home));
        if holds || mounts.contains(home) {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push(format!("{pid} {}", name.trim()));
        }
    }
    found
}

/// What is in a folder of the state, which need not be there.
pub(crate) fn entries(home: &Home, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(home.state().join(folder)).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn cgroups(ids: &[&str]) -> Vec<String> {
    let (mut found, mut open) = (Vec::new(), vec![PathBuf::from("/sys/fs/cgroup")]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if ids.iter().any(|id| name.contains(id)) {
                found.push(entry.path().display().to_string());
            }
            open.push(entry.path());
        }
    }
    found
}

/// Processes end a moment after they are told to; everything else is there or it is not.
pub(crate) fn assert_nothing_left(home: &Home, rows: &[Value], point: &str) {
    let ids: Vec<&str> = rows.iter().map(|row| row["sandbox_id"].as_str().unwrap()).collect();
    let none = Vec::<String>::new();
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut running = processes(home.path());
    while !running.is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        running = processes(home.path());
    }
    assert_eq!(running, none, "processes after {point}");
    for folder in ["sandboxes", "saas-stub/native/sandboxes", "saas-stub/sandboxes", "staging", "mirrors"] {
        assert_eq!(entries(home, folder), none, "{folder} after {point}");
    }
    assert_eq!(cgroups(&ids), none, "cgroups after {point}");
    let stale = home.json(&["inspect", "stale"]);
    let known = |what: &str, by: &str| {
        let found = stale[what].as_array().unwrap().iter();
        // On an engine that several share, what no row of this home knows is somebody else's.
        found.filter(|one| one["known"] != false).map(|one| one[by].to_string()).collect::<Vec<_>>()
    };
    assert_eq!((known("remains", "tag"), known("rows", "sandbox_id")), (none.clone(), none), "{point}");
}
