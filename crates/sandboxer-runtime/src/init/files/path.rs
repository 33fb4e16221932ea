//! Paths, resolved by the kernel inside the sandbox's root.

use super::{FileError, FileResult};
use crate::error::ErrorKind;
use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, open, openat, openat2};
use std::os::fd::OwnedFd;

/// A path from the root; a relative one starts at the sandbox's working directory.
pub(super) fn absolute(path: &str, cwd: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{cwd}/{path}") }
}

/// Opens a path with links resolved inside the root; magic links of `/proc` lead elsewhere and are refused.
pub(super) fn open_in_root(path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let root = open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let relative = path.trim_start_matches('/');
    let relative = if relative.is_empty() { "." } else { relative };
    openat2(
        root,
        relative,
        flags | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
    )
}

/// The directory that holds a path, opened, and the name in it.
pub(super) fn parent(path: &str, create: bool) -> FileResult<(OwnedFd, String)> {
    let trimmed = path.trim_end_matches('/');
    let (dir, name) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
    if matches!(name, "" | "." | "..") {
        return Err(FileError::new(ErrorKind::UnsafePath, "the path names no entry of a directory"));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let opened = match open_in_root(dir, flags) {
        Err(rustix::io::Errno::NOENT) if create => {
            make_directories(dir)?;
            open_in_root(dir, flags)?
        }
        other => other?,
    };
    Ok((opened, name.to_owned()))
}

/// Makes a directory with all above it; what is there already may be reached over links.
pub(super) fn make_directories(path: &str) -> FileResult<()> {
    let mut at = open_in_root("/", OFlags::PATH | OFlags::DIRECTORY)?;
    let mut done = String::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        done = format!("{done}/{part}");
        match open_in_root(&done, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(next) => at = next,
            Err(rustix::io::Errno::NOENT) if part != ".." => {
                match mkdirat(&at, part, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                at = openat(
                    &at,
                    part,
                    OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                    Mode::empty(),
                )?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
