//! Resource limits by cgroup: v2 where the host has it with its controllers, else v1, else none.
//!
//! A sandbox's cgroups are named after its id, below the launcher's own, and are recorded before they
//! are made, so that whoever sweeps finds them.

mod discover;

pub(crate) use discover::Hierarchy;

use crate::error::{AtStep as _, Result};
use crate::probe::CgroupVersion;
use crate::report::{CleanupReport, Control, Enforced, Outcome, Usage};
use crate::spec::Limits;
use rustix::fs::{Mode, OFlags, open};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The cgroups of one sandbox; no controllers at all where the host gives none.
pub(crate) struct Cgroup {
    version: CgroupVersion,
    /// One directory a controller; on v2 the same one for all.
    places: Vec<(String, PathBuf)>,
}

/// How init gets into its cgroups.
pub(crate) enum Entry {
    /// By the clone itself.
    V2(OwnedFd),
    /// By writing to each of these `tasks` files.
    V1(Vec<OwnedFd>),
    None,
}

/// A short mark of a path (FNV-1a); it only has to differ between the few roots of one machine.
fn mark(root: &Path) -> u32 {
    use std::os::unix::ffi::OsStrExt as _;
    root.as_os_str()
        .as_bytes()
        .iter()
        .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

impl Cgroup {
    /// Where the cgroups of this sandbox will be; makes nothing.
    /// The root is in the name: two of them may have a sandbox of the same id, and each ends only its own.
    pub(crate) fn plan(hierarchy: &Hierarchy, root: &Path, id: &str, limits: &Limits) -> Self {
        let name = format!("sandboxer-{id}-{:08x}", mark(root));
        let wanted = |controller: &str| match controller {
            "memory" | "pids" => true,
            "cpu" => limits.cpu.is_some() || hierarchy.version == CgroupVersion::V2,
            "cpuacct" => true,
            _ => false,
        };
        let places = hierarchy.parents.iter().filter(|(controller, _)| wanted(controller));
        Self {
            version: hierarchy.version,
            places: places.map(|(controller, parent)| (controller.clone(), parent.join(&name))).collect(),
        }
    }

    /// On v2 a process is born into its cgroup; on v1 it joins, so its cgroups can be made meanwhile.
    pub(crate) fn is_joined_late(&self) -> bool {
        self.version == CgroupVersion::V1
    }

    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = self.places.iter().map(|(_, path)| path.clone()).collect();
        paths.dedup();
        paths
    }

    pub(crate) fn create(&self) -> Result<()> {
        for path in self.paths() {
            match fs::create_dir(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(error).at("cgroup", format!("cannot make the cgroup {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(crate) fn entry(&self) -> Result<Entry> {
        let message = "cannot open a cgroup";
        match self.version {
            CgroupVersion::None => Ok(Entry::None),
            CgroupVersion::V2 => {
                let Some(path) = self.paths().into_iter().next() else { return Ok(Entry::None) };
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                Ok(Entry::V2(open(path, flags, Mode::empty()).at("cgroup", message)?))
            }
            CgroupVersion::V1 => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                let tasks =
                    self.paths().into_iter().map(|path| open(path.join("tasks"), flags, Mode::empty()));
                Ok(Entry::V1(tasks.collect::<rustix::io::Result<_>>().at("cgroup", message)?))
            }
        }
    }

    fn place(&self, controller: &str) -> Option<&Path> {
        self.places.iter().find(|(name, _)| name == controller).map(|(_, path)| path.as_path())
    }

    fn read_u64(&self, controller: &str, file: &str) -> Option<u64> {
        fs::read_to_string(self.place(controller)?.join(file)).ok()?.trim().parse().ok()
    }

    /// Sets the limits that were asked for and says of each whether it holds.
    pub(crate) fn limit(&self, limits: &Limits, report: &mut Enforced) {
        if let Some(mb) = limits.memory_mb {
            self.report(
                report,
                Control::MemoryLimit,
                "memory",
                self.limit_memory(mb << 20),
                &format!("{mb} MiB"),
            );
        }
        // Without a cgroup init limits it by user and says so.
        if let Some(pids) = limits.pids
            && self.version != CgroupVersion::None
        {
            let set = self.write("pids", "pids.max", &pids.to_string());
            self.report(report, Control::PidsLimit, "pids", set, &format!("{pids} processes"));
        }
        if let Some(cpu) = limits.cpu {
            self.report(report, Control::CpuLimit, "cpu", self.limit_cpu(cpu), &format!("{cpu} cores"));
        }
    }

    fn report(
        &self,
        report: &mut Enforced,
        control: Control,
        controller: &str,
        set: io::Result<()>,
        value: &str,
    ) {
        match set {
            Ok(()) => {
                let version = if self.version == CgroupVersion::V2 { "v2" } else { "v1" };
                report.push(control, Outcome::Enforced, format!("{value} by cgroup {version}"));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let detail =
                    format!("{value} not enforced: no writable cgroup with the {controller} controller");
                report.push(control, Outcome::Missing, detail);
            }
            Err(error) => report.push(control, Outcome::Missing, format!("{value} not enforced: {error}")),
        }
    }

    fn write(&self, controller: &str, file: &str, value: &str) -> io::Result<()> {
        let place = self.place(controller).ok_or(io::ErrorKind::NotFound)?;
        fs::write(place.join(file), value)
    }

    fn limit_memory(&self, bytes: u64) -> io::Result<()> {
        if self.version == CgroupVersion::V2 {
            self.write("memory", "memory.max", &bytes.to_string())?;
            // Without this a limit on memory only moves the excess to swap.
            let _ = self.write("memory", "memory.swap.max", "0");
            return Ok(());
        }
        self.write("memory", "memory.limit_in_bytes", &bytes.to_string())?;
        let _ = self.write("memory", "memory.memsw.limit_in_bytes", &bytes.to_string());
        Ok(())
    }

    fn limit_cpu(&self, cores: f64) -> io::Result<()> {
        const PERIOD: f64 = 100_000.0;
        let quota = (cores * PERIOD).max(1000.0) as u64;
        match self.version {
            CgroupVersion::V2 => self.write("cpu", "cpu.max", &format!("{quota} {PERIOD}")),
            _ => self.write("cpu", "cpu.cfs_quota_us", &quota.to_string()),
        }
    }

    /// How often the memory limit has killed; compared before and after an exec.
    pub(crate) fn oom_kills(&self) -> u64 {
        let file = if self.version == CgroupVersion::V2 { "memory.events" } else { "memory.oom_control" };
        let text = self
            .place("memory")
            .and_then(|path| fs::read_to_string(path.join(file)).ok())
            .unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    pub(crate) fn usage(&self) -> Usage {
        let v2 = self.version == CgroupVersion::V2;
        let pick = |two, one| if v2 { two } else { one };
        Usage {
            memory_bytes: self.read_u64("memory", pick("memory.current", "memory.usage_in_bytes")),
            memory_peak_bytes: self.read_u64("memory", pick("memory.peak", "memory.max_usage_in_bytes")),
            cpu_usec: if v2 {
                self.cpu_stat()
            } else {
                self.read_u64("cpuacct", "cpuacct.usage").map(|ns| ns / 1000)
            },
            pids: self.read_u64("pids", "pids.current"),
            disk_bytes: None,
        }
    }

    fn cpu_stat(&self) -> Option<u64> {
        let text = fs::read_to_string(self.place("cpu")?.join("cpu.stat")).ok()?;
        text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.trim().parse().ok()
    }

    /// What the kernel says about a limit now.
    pub(crate) fn read_back(&self, control: Control) -> Option<String> {
        let v2 = self.version == CgroupVersion::V2;
        let (controller, file) = match control {
            Control::MemoryLimit => ("memory", if v2 { "memory.max" } else { "memory.limit_in_bytes" }),
            Control::PidsLimit => ("pids", "pids.max"),
            Control::CpuLimit => ("cpu", if v2 { "cpu.max" } else { "cpu.cfs_quota_us" }),
            _ => return None,
        };
        let text = fs::read_to_string(self.place(controller)?.join(file)).ok()?;
        Some(format!("{file} = {}", text.trim()))
    }

    pub(crate) fn remove(&self, report: &mut CleanupReport) {
        for path in self.paths() {
            remove(&path, report);
        }
    }
}

/// Ends what is left in a cgroup of ours and removes it.
pub(crate) fn remove(path: &Path, report: &mut CleanupReport) {
    let ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("sandboxer-"));
    if !ours {
        return report.leave("cgroup", path, "its name is not one of ours");
    }
    for attempt in 0..200 {
        match fs::remove_dir(path) {
            Ok(()) => return report.removed.push(format!("cgroup {}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && attempt < 199 => {
                kill_members(path);
                std::thread::sleep(Duration::from_millis(if attempt < 20 { 1 } else { 20 }));
            }
            Err(error) => return report.leave("cgroup", path, error),
        }
    }
}

fn kill_members(path: &Path) {
    if fs::write(path.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    let members = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    for pid in members.lines().filter_map(|line| line.parse().ok()) {
        if let Some(pid) = rustix::process::Pid::from_raw(pid) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}
