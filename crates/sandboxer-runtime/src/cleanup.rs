//! Removing a sandbox: shared by the supervisor, which ends its own, and by whoever sweeps a dead one.

use crate::cgroup;
use crate::dirs::{self, RuntimeDirs};
use crate::error::{AtStep as _, ErrorKind, Result, RuntimeError};
use crate::fault;
use crate::report::CleanupReport;
use crate::sys;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags, chmodat, openat, renameat_with, unlinkat};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// How deep a tree is walked before its lower part is moved up; bounds the open descriptors.
const MAX_DEPTH: usize = 24;
/// Parts that are moved up; each shortens its paths by `MAX_DEPTH`.
const MAX_ROUNDS: usize = 1 << 16;
/// What their names start with, beside the tree that they come from.
const MOVED: &str = "moved-";

/// Removes what a dead supervisor left. Whoever holds the lock may do it, and nobody else.
pub(crate) fn sweep(dirs: &RuntimeDirs, id: &str) -> Result<CleanupReport> {
    let mut report = CleanupReport::default();
    let dir = match open_for_removal(dirs, id) {
        Ok(Some(dir)) => dir,
        Ok(None) => return Ok(report),
        Err(error) => return Err(error),
    };
    let lock_flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock =
        openat(&dir, dirs::LOCK, lock_flags, Mode::RUSR | Mode::WUSR).at("sweep", "cannot open the lock")?;
    if !sys::lock::try_take(&lock).at("sweep", "cannot take the lock")? {
        return Err(RuntimeError::new(ErrorKind::Busy, "sweep", format!("sandbox `{id}` is running")));
    }
    sweep_locked(dirs, id, &dir, &mut report);
    Ok(report)
}

/// The sweep itself, under the lock.
pub(crate) fn sweep_locked(dirs: &RuntimeDirs, id: &str, dir: &OwnedFd, report: &mut CleanupReport) {
    let (record, holder) = dirs::read_lock(dir);
    if let Some(holder) = holder
        && let Some(init) = sys::process::open_recorded(holder.init, holder.init_start)
    {
        match sys::process::kill_and_wait(&init, 5000) {
            true => report.removed.push(format!("process {}", holder.init)),
            false => report.leave("process", format!("/proc/{}", holder.init), "it does not die"),
        }
    }
    for path in record.iter().flat_map(|record| &record.cgroups) {
        cgroup::remove(path, report);
    }
    remove_directory(dirs, id, dir, report);
}

fn open_for_removal(dirs: &RuntimeDirs, id: &str) -> Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match rustix::fs::open(dirs.sandbox(id), flags, Mode::empty()) {
        Ok(dir) => Ok(Some(dir)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error).at("sweep", format!("cannot open the directory of sandbox `{id}`")),
    }
}

/// Removes the directory; the lock goes last, so that a crash in between leaves something sweepable.
pub(crate) fn remove_directory(dirs: &RuntimeDirs, id: &str, dir: &OwnedFd, report: &mut CleanupReport) {
    let path = dirs.sandbox(id);
    unlink(dir.as_fd(), dirs::SOCKET, &path, report);
    fault::point("runtime.stop.after_socket");
    remove_tree(dir.as_fd(), dirs::LAYER, &path, report);
    fault::point("runtime.stop.after_layer");
    remove_tree(dir.as_fd(), dirs::WORK, &path, report);
    remove_tree(dir.as_fd(), dirs::LOGS, &path, report);
    remove_moved(dir, &path, report);
    fault::point("runtime.stop.before_lock_removed");
    if !report.left.is_empty() {
        // Without its lock and its record the rest could not be found again.
        return;
    }
    unlink(dir.as_fd(), dirs::LOCK, &path, report);
    match std::fs::remove_dir(&path) {
        Ok(()) => report.removed.push(format!("directory {}", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => report.leave("directory", path, error),
    }
}

/// What a sweep that broke off had moved up.
fn remove_moved(dir: &OwnedFd, path: &Path, report: &mut CleanupReport) {
    let entries = Dir::read_from(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
    for name in names.filter(|name| name.starts_with(MOVED)).collect::<Vec<_>>() {
        remove_tree(dir.as_fd(), &name, path, report);
    }
}

fn unlink(dir: BorrowedFd<'_>, name: &str, path: &Path, report: &mut CleanupReport) {
    match unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => report.leave("file", path.join(name), std::io::Error::from(error)),
    }
}

/// Removes a whole tree, however deep, with a bounded number of open descriptors.
pub(crate) fn remove_tree(parent: BorrowedFd<'_>, name: &str, path: &Path, report: &mut CleanupReport) {
    let mut walk = Walk { parent, moved: Vec::new(), count: 0, report, path: path.join(name), failed: false };
    walk.remove(name);
    for _ in 0..MAX_ROUNDS {
        let Some(next) = walk.moved.pop() else { return };
        walk.remove(&next);
    }
}

struct Walk<'a> {
    /// Where the tree is, and where deep parts of it are moved to: the sandbox never saw this directory.
    parent: BorrowedFd<'a>,
    moved: Vec<String>,
    count: usize,
    report: &'a mut CleanupReport,
    path: PathBuf,
    failed: bool,
}

impl Walk<'_> {
    /// Removes one tree of the parent, but for what is moved up to be removed next.
    fn remove(&mut self, name: &str) {
        let Ok(c_name) = CString::new(name) else { return };
        let top = match open_dir(self.parent, &c_name) {
            Ok(top) => top,
            Err(Errno::NOENT) => return,
            Err(error) => return self.fail(error),
        };
        self.empty(&top, 0);
        match unlinkat(self.parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            // What is left in it has been reported.
            Err(Errno::NOTEMPTY) if self.failed => {}
            Err(error) => self.fail(error),
        }
    }

    fn empty(&mut self, dir: &OwnedFd, depth: usize) {
        let entries = match Dir::read_from(dir) {
            Ok(entries) => entries,
            Err(error) => return self.fail(error),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return self.fail(error),
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let outcome = match unlinkat(dir, name, AtFlags::empty()) {
                Err(Errno::ISDIR) => self.remove_dir(dir, name, depth),
                other => other,
            };
            match outcome {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => self.fail(error),
            }
        }
    }

    fn remove_dir(&mut self, dir: &OwnedFd, name: &std::ffi::CStr, depth: usize) -> rustix::io::Result<()> {
        if unlinkat(dir, name, AtFlags::REMOVEDIR).is_ok() {
            return Ok(());
        }
        // Opening makes it writable too, without which it could not be moved.
        let child = open_dir(dir.as_fd(), name)?;
        if depth >= MAX_DEPTH {
            return self.move_up(dir, name);
        }
        self.empty(&child, depth + 1);
        match unlinkat(dir, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY) if self.failed => Ok(()),
            other => other,
        }
    }

    fn move_up(&mut self, dir: &OwnedFd, name: &std::ffi::CStr) -> rustix::io::Result<()> {
        loop {
            self.count += 1;
            let to = format!("{MOVED}{}", self.count);
            match renameat_with(dir, name, self.parent, &to, RenameFlags::NOREPLACE) {
                // Left by a sweep that broke off; it is removed with the rest.
                Err(Errno::EXIST) if self.count < MAX_ROUNDS => self.moved.push(to),
                Err(error) => return Err(error),
                Ok(()) => {
                    self.moved.push(to);
                    return Ok(());
                }
            }
        }
    }

    fn fail(&mut self, error: Errno) {
        self.failed = true;
        self.report.leave("file", self.path.clone(), std::io::Error::from(error));
    }
}

/// Opens a directory of which the owner may have taken all permissions, as overlay does with its own.
fn open_dir(parent: BorrowedFd<'_>, name: &std::ffi::CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match openat(parent, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
            openat(parent, name, flags, Mode::empty())?
        }
        other => other?,
    };
    let stat = rustix::fs::fstat(&opened)?;
    if stat.st_mode & 0o700 != 0o700 {
        rustix::fs::fchmod(&opened, Mode::RWXU)?;
    }
    Ok(opened)
}

/// Ends a supervisor that does not answer; its init follows it.
pub(crate) fn kill_supervisor(dirs: &RuntimeDirs, id: &str) {
    let Ok(dir) = dirs::open_sandbox(dirs, id) else { return };
    if !dirs::is_alive(&dir) {
        return;
    }
    let (_, Some(holder)) = dirs::read_lock(&dir) else { return };
    if let Some(supervisor) = sys::process::open_recorded(holder.supervisor, holder.supervisor_start) {
        sys::process::kill_and_wait(&supervisor, 5000);
    }
}
