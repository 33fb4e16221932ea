//! Finds the directories in which this process may make cgroups.

use crate::probe::{CgroupVersion, Cgroups, Feature};
use rustix::fs::{Access, access};
use std::fs;
use std::path::{Path, PathBuf};

const WANTED: [&str; 4] = ["memory", "pids", "cpu", "cpuacct"];

/// The parents of all sandboxes' cgroups, found once a launcher.
#[derive(Debug, Clone)]
pub(crate) struct Hierarchy {
    pub(crate) version: CgroupVersion,
    /// Controller and the directory below which its cgroups are made.
    pub(crate) parents: Vec<(String, PathBuf)>,
    reason: String,
}

impl Hierarchy {
    pub(crate) fn none(reason: impl Into<String>) -> Self {
        Self { version: CgroupVersion::None, parents: Vec::new(), reason: reason.into() }
    }

    pub(crate) fn discover() -> Self {
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts: Vec<CgroupMount> = mountinfo.lines().filter_map(CgroupMount::parse).collect();
        if let Some(found) = discover_v2(&mounts, &own) {
            return found;
        }
        let parents: Vec<_> = WANTED
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), v1_parent(&mounts, &own, name)?)))
            .collect();
        if parents.is_empty() {
            return Self::none("no cgroup hierarchy in which this user may make a cgroup");
        }
        Self { version: CgroupVersion::V1, parents, reason: String::new() }
    }

    pub(crate) fn probe(&self) -> Cgroups {
        let writable: Vec<String> = self.parents.iter().map(|(name, _)| name.clone()).collect();
        let feature = match self.version {
            CgroupVersion::None => {
                let hint =
                    "run as root, or in a delegated scope: systemd-run --user --scope -p Delegate=yes …";
                Feature::missing(self.reason.clone(), hint)
            }
            CgroupVersion::V1 => Feature::available(format!("v1: {}", writable.join(", "))),
            CgroupVersion::V2 => Feature::available(format!("v2: {}", writable.join(", "))),
        };
        Cgroups { version: self.version, writable, feature }
    }
}

struct CgroupMount {
    root: PathBuf,
    point: PathBuf,
    v2: bool,
    options: String,
}

impl CgroupMount {
    /// `36 35 98:0 /root /point opts - type source super-options`
    fn parse(line: &str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ');
        let (root, point) = (left.nth(3)?, left.next()?);
        let mut right = right.split(' ');
        let kind = right.next()?;
        let options = right.nth(1)?.to_owned();
        let v2 = kind == "cgroup2";
        (v2 || kind == "cgroup").then(|| Self { root: root.into(), point: point.into(), v2, options })
    }

    /// Where a cgroup of this hierarchy is in the file system.
    fn resolve(&self, cgroup: &str) -> PathBuf {
        let relative = Path::new(cgroup).strip_prefix(&self.root).unwrap_or(Path::new(""));
        let path = self.point.join(relative.strip_prefix("/").unwrap_or(relative));
        if path.is_dir() { path } else { self.point.clone() }
    }
}

fn own_cgroup<'a>(own: &'a str, controller: &str) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        names.split(',').any(|name| name == controller).then_some(path)
    })
}

fn v1_parent(mounts: &[CgroupMount], own: &str, controller: &str) -> Option<PathBuf> {
    let mount = mounts.iter().find(|m| !m.v2 && m.options.split(',').any(|option| option == controller))?;
    let parent = mount.resolve(own_cgroup(own, controller)?);
    access(&parent, Access::WRITE_OK).is_ok().then_some(parent)
}

/// The nearest cgroup upwards whose children have the controllers, or may be given them.
fn discover_v2(mounts: &[CgroupMount], own: &str) -> Option<Hierarchy> {
    let mount = mounts.iter().find(|m| m.v2)?;
    let mut candidate = mount.resolve(own_cgroup(own, "")?);
    loop {
        if access(&candidate, Access::WRITE_OK).is_ok()
            && access(candidate.join("cgroup.procs"), Access::WRITE_OK).is_ok()
        {
            let offered = fs::read_to_string(candidate.join("cgroup.controllers")).unwrap_or_default();
            for name in WANTED.iter().filter(|name| offered.split_whitespace().any(|o| o == **name)) {
                // Refused where the cgroup has processes of its own; then its parent is the place.
                let _ = fs::write(candidate.join("cgroup.subtree_control"), format!("+{name}"));
            }
            let enabled = fs::read_to_string(candidate.join("cgroup.subtree_control")).unwrap_or_default();
            let parents: Vec<_> = (enabled.split_whitespace())
                .filter(|name| WANTED.contains(name))
                .map(|name| (name.to_owned(), candidate.clone()))
                .collect();
            if parents.iter().any(|(name, _)| name == "memory" || name == "pids") {
                return Some(Hierarchy { version: CgroupVersion::V2, parents, reason: String::new() });
            }
        }
        if candidate == mount.point || !candidate.pop() {
            return None;
        }
    }
}
