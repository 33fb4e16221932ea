//! Single steps from one open folder to the next. No step follows a link, so whoever swaps one in gains nothing.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};

/// Opens the top of a walk. The path itself is the caller's and may contain links.
pub(crate) fn open_root(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, folder, flags, Mode::empty())?)
}

/// Opens a folder in a folder.
pub(crate) fn open_dir(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?)
}

/// Opens a file for reading, and only a regular one: what was a file a moment ago may be a pipe now.
pub(crate) fn open_file(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<(File, Stat)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    if kind(&stat) != FileType::RegularFile {
        return Err(io::Error::other("it is no longer a regular file"));
    }
    Ok((File::from(fd), stat))
}

pub(crate) fn stat(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Stat> {
    Ok(rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?)
}

pub(crate) fn read_link(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<PathBuf> {
    let target = rustix::fs::readlinkat(dir, name, Vec::new())?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(target.into_bytes())))
}

pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The names in a folder, in the order of their bytes.
pub(crate) fn names(dir: BorrowedFd<'_>, most: usize) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if names.len() >= most {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        names.push(name.to_owned());
    }
    names.sort_unstable();
    Ok(names)
}

pub(crate) fn os(name: &CStr) -> &OsStr {
    OsStr::from_bytes(name.to_bytes())
}

/// The open folder that holds the last part of a relative path, and that part.
pub(crate) fn parent(root: BorrowedFd<'_>, path: &Path) -> io::Result<(OwnedFd, CString)> {
    let mut dir = root.as_fd().try_clone_to_owned()?;
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        let std::path::Component::Normal(name) = part else {
            return Err(io::Error::other("a path that is not plainly relative"));
        };
        let name = CString::new(name.as_bytes())?;
        if parts.peek().is_none() {
            return Ok((dir, name));
        }
        dir = open_dir(dir.as_fd(), &name)?;
    }
    Err(io::Error::other("an empty path"))
}
