//! Processes that belong to a folder: those whose working directory it is.
//!
//! A machine's processes are started in the machine's own folder, and a build's in the build's. So they can be found
//! and ended without any record of them, which a crash between the start and the record would lose.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// One process, told apart from a later one with the same number by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// In clock ticks since the machine started.
    pub(crate) started: u64,
}

impl Process {
    /// The process that has this number now; none when it has ended, waited for or not.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name is in brackets and may contain anything.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let state = *fields.first()?;
        if matches!(state, "Z" | "X" | "x") {
            return None;
        }
        Some(Self { pid, started: fields.get(19)?.parse().ok()? })
    }

    pub(crate) fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Ends it at once; the number is checked again when it cannot change any more.
    pub(crate) fn kill(self) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if self.is_alive() {
            let _ = pidfd_send_signal(&fd, Signal::KILL);
        }
    }

    /// Memory in bytes and processor time in microseconds.
    pub(crate) fn usage(self) -> (Option<u64>, Option<u64>) {
        let memory = std::fs::read_to_string(format!("/proc/{}/statm", self.pid)).ok().and_then(|text| {
            let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
            Some(pages * rustix::param::page_size() as u64)
        });
        let cpu = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok().and_then(|stat| {
            let fields: Vec<u64> =
                stat.rsplit_once(')')?.1.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
            let ticks = fields.get(11)? + fields.get(12)?;
            Some(ticks * 1_000_000 / rustix::param::clock_ticks_per_second().max(1))
        });
        (memory, cpu)
    }
}

/// Every process that works in this folder or below it, also after the folder was removed.
pub(crate) fn working_in(folder: &Path) -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            std::fs::read_link(format!("/proc/{pid}/cwd"))
                .is_ok_and(|cwd| without_mark(cwd).starts_with(folder))
        })
        .filter_map(Process::of)
        .collect()
}

/// The kernel marks the path of a folder that was removed.
fn without_mark(path: PathBuf) -> PathBuf {
    match path.to_str().and_then(|text| text.strip_suffix(" (deleted)")) {
        Some(text) => PathBuf::from(text),
        None => path,
    }
}

/// Ends everything that works in this folder and waits until it is gone. Gives what would not go.
pub(crate) fn end_all(folder: &Path, patience: Duration) -> Vec<Process> {
    let start = Instant::now();
    loop {
        let living = working_in(folder);
        if living.is_empty() || start.elapsed() > patience {
            return living;
        }
        for process in living {
            process.kill();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_found_and_ended_by_their_folder() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").current_dir(&real).spawn().unwrap();
        // A child is found once it has changed its folder.
        let start = Instant::now();
        while working_in(&real).is_empty() && start.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let found = working_in(&real);
        assert_eq!(found.iter().map(|process| process.pid).collect::<Vec<_>>(), [child.id() as i32]);
        std::fs::remove_dir(&real).unwrap();
        assert_eq!(working_in(&real), found, "the folder is gone, its process is not");
        assert!(end_all(&real, Duration::from_secs(5)).is_empty());
        assert!(!child.wait().unwrap().success());
        assert!(!found[0].is_alive());
    }
}
