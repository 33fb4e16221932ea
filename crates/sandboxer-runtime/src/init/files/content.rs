//! Reading and writing one file.

use super::path::{open_in_root, parent};
use super::{FileError, FileResult};
use crate::error::ErrorKind;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, fstat, openat, renameat, statat, unlinkat};
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::os::fd::OwnedFd;

/// Largest chunk a writer may announce.
const MAX_CHUNK: usize = 1 << 20;

/// Copies a regular file to `out`. Opened without blocking, so that a pipe cannot hold it up.
pub(super) fn read(path: &str, offset: u64, limit: Option<u64>, out: &mut File) -> FileResult<()> {
    let fd = open_in_root(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let stat = fstat(&fd)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(rustix::io::Errno::ISDIR.into()),
        _ => return Err(FileError::new(ErrorKind::Io, "it is not a regular file")),
    }
    let mut file = File::from(fd);
    if offset > 0 {
        file.seek(SeekFrom::Start(offset))?;
    }
    io::copy(&mut file.take(limit.unwrap_or(u64::MAX)), out)?;
    Ok(())
}

/// Writes a file whole or not at all: into a temporary one next to it, which is then renamed.
pub(super) fn write(path: &str, mode: Option<u32>, create_parents: bool, input: &mut File) -> FileResult<()> {
    if path.ends_with('/') {
        return Err(rustix::io::Errno::ISDIR.into());
    }
    let (dir, name) = parent(path, create_parents)?;
    let existing = match statat(&dir, name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(stat),
        Err(rustix::io::Errno::NOENT) => None,
        Err(error) => return Err(error.into()),
    };
    match existing.as_ref().map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        None | Some(FileType::RegularFile | FileType::Symlink) => {}
        Some(FileType::Directory) => return Err(rustix::io::Errno::ISDIR.into()),
        Some(_) => return Err(FileError::new(ErrorKind::Io, "it is not a regular file")),
    }
    let kept = existing
        .filter(|stat| FileType::from_raw_mode(stat.st_mode).is_file())
        .map(|stat| stat.st_mode & 0o777);
    let mode = mode.or(kept).unwrap_or(0o644) & 0o777;
    let temporary = format!(".{:.100}.{}.tmp", name, rustix::process::getpid().as_raw_nonzero());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match openat(&dir, temporary.as_str(), flags, Mode::RUSR | Mode::WUSR) {
        // The directory takes no new file, but the file itself may be writable.
        Err(rustix::io::Errno::ACCESS) if kept.is_some() => return overwrite(&dir, &name, input),
        other => File::from(other?),
    };
    let written = receive(file, input).and_then(|file| {
        fchmod(&file, Mode::from_raw_mode(mode))?;
        Ok(renameat(&dir, temporary.as_str(), &dir, name.as_str())?)
    });
    if written.is_err() {
        let _ = unlinkat(&dir, temporary.as_str(), AtFlags::empty());
    }
    written
}

fn overwrite(dir: &OwnedFd, name: &str, input: &mut File) -> FileResult<()> {
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(dir, name, flags, Mode::empty())?);
    receive(file, input).map(|_| ())
}

/// Takes chunks with their length before them until an empty one. An end without it is a caller that died.
fn receive(mut file: File, input: &mut File) -> FileResult<File> {
    let mut buffer = Vec::new();
    loop {
        let mut header = [0_u8; 4];
        let cut = |_| FileError::new(ErrorKind::Protocol, "the content was cut off");
        input.read_exact(&mut header).map_err(cut)?;
        let length = u32::from_le_bytes(header) as usize;
        if length == 0 {
            return Ok(file);
        }
        if length > MAX_CHUNK {
            return Err(FileError::new(ErrorKind::Protocol, "a chunk is too large"));
        }
        buffer.resize(length, 0);
        input.read_exact(&mut buffer).map_err(cut)?;
        file.write_all(&buffer)?;
    }
}
