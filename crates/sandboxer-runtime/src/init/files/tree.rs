//! Looking at and changing directories.

use super::path::{make_directories, open_in_root, parent};
use super::{FileError, FileResult};
use crate::cleanup;
use crate::error::ErrorKind;
use crate::report::CleanupReport;
use crate::spec::{FileEntry, FileKind};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, mkdirat, openat, readlinkat, renameat, statat, unlinkat,
};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

/// Most entries of one listing.
const MAX_ENTRIES: usize = 100_000;
/// Deepest listing.
const MAX_DEPTH: u32 = 64;

/// One file, its last link not followed.
pub(super) fn stat(path: &str, out: &mut File) -> FileResult<()> {
    let entry = match parent(path, false) {
        Ok((dir, name)) => entry(dir.as_fd(), &name, path.to_owned())?,
        // The root has no name in a directory.
        Err(error) if error.kind == ErrorKind::UnsafePath => {
            let dir = open_in_root(path, OFlags::PATH | OFlags::DIRECTORY)?;
            entry(dir.as_fd(), ".", path.to_owned())?
        }
        Err(error) => return Err(error),
    };
    write_entry(out, &entry)
}

pub(super) fn list(path: &str, depth: u32, out: &mut File) -> FileResult<()> {
    let dir = open_in_root(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut out = BufWriter::new(out);
    let mut left = MAX_ENTRIES;
    list_below(&dir, path.trim_end_matches('/'), depth.clamp(1, MAX_DEPTH), &mut left, &mut out)?;
    Ok(out.flush()?)
}

fn list_below(
    dir: &OwnedFd,
    path: &str,
    depth: u32,
    left: &mut usize,
    out: &mut impl Write,
) -> FileResult<()> {
    let mut names: Vec<String> = Vec::new();
    for item in Dir::read_from(dir)? {
        let item = item?;
        let name = item.file_name().to_string_lossy().into_owned();
        if name == "." || name == ".." {
            continue;
        }
        if *left == 0 {
            return Err(FileError::new(
                ErrorKind::TooLarge,
                format!("it has more than {MAX_ENTRIES} entries"),
            ));
        }
        *left -= 1;
        names.push(name);
    }
    names.sort();
    for name in names {
        // It may have gone since the directory was read.
        let Ok(entry) = entry(dir.as_fd(), &name, format!("{path}/{name}")) else { continue };
        write_entry(out, &entry)?;
        if entry.kind == FileKind::Directory && depth > 1 {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if let Ok(below) = openat(dir, name.as_str(), flags, Mode::empty()) {
                list_below(&below, &entry.path, depth - 1, left, out)?;
            }
        }
    }
    Ok(())
}

fn write_entry(out: &mut impl Write, entry: &FileEntry) -> FileResult<()> {
    let mut line = serde_json::to_vec(entry).map_err(std::io::Error::other)?;
    line.push(b'\n');
    Ok(out.write_all(&line)?)
}

fn entry(dir: BorrowedFd<'_>, name: &str, path: String) -> FileResult<FileEntry> {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    };
    let link = (kind == FileKind::Symlink).then(|| readlinkat(dir, name, Vec::new())).transpose()?;
    Ok(FileEntry {
        path,
        kind,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified_unix_ms: stat
            .st_mtime
            .saturating_mul(1000)
            .saturating_add(stat.st_mtime_nsec as i64 / 1_000_000),
        link_target: link.map(|link| link.to_string_lossy().into_owned()),
    })
}

/// Removes a file, an empty directory, or with `recursive` a whole tree. Links are removed, not followed.
pub(super) fn delete(path: &str, recursive: bool) -> FileResult<()> {
    let (dir, name) = parent(path, false)?;
    match unlinkat(&dir, name.as_str(), AtFlags::empty()) {
        Err(rustix::io::Errno::ISDIR) => {}
        other => return Ok(other?),
    }
    if !recursive {
        return match unlinkat(&dir, name.as_str(), AtFlags::REMOVEDIR) {
            Err(rustix::io::Errno::NOTEMPTY) => {
                Err(FileError::new(ErrorKind::Exists, "the directory is not empty"))
            }
            other => Ok(other?),
        };
    }
    let mut report = CleanupReport::default();
    cleanup::remove_tree(dir.as_fd(), &name, Path::new(path), &mut report);
    match report.left.first() {
        None => Ok(()),
        Some(left) => Err(FileError::new(ErrorKind::Permission, left.reason.clone())),
    }
}

pub(super) fn mkdir(path: &str, parents: bool) -> FileResult<()> {
    if parents {
        return make_directories(path);
    }
    let (dir, name) = parent(path, false)?;
    Ok(mkdirat(&dir, name.as_str(), Mode::from_raw_mode(0o755))?)
}

pub(super) fn rename(from: &str, to: &str) -> FileResult<()> {
    let (from_dir, from_name) = parent(from, false)?;
    let (to_dir, to_name) = parent(to, false)?;
    match renameat(&from_dir, from_name.as_str(), &to_dir, to_name.as_str()) {
        // Between two file systems, and one of them is memory: the caller has to copy.
        Err(rustix::io::Errno::XDEV) => {
            Err(FileError::new(ErrorKind::Io, "source and target are on different file systems"))
        }
        other => Ok(other?),
    }
}
