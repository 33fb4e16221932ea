//! Trees as tar archives. What comes in is not trusted: no entry may be written outside the target or
//! through a link, and neither owners nor special bits are kept.

use super::path::{make_directories, open_in_root};
use super::{FileError, FileResult};
use crate::error::ErrorKind;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fchmod, linkat, mkdirat, openat, openat2, readlinkat,
    statat, symlinkat, unlinkat,
};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use tar::{Archive, Builder, EntryType, Header};

/// Most entries of an archive, either way.
const MAX_ENTRIES: usize = 500_000;
const MAX_DEPTH: usize = 256;
/// Not part of anybody's tree.
const SKIPPED: [&str; 3] = ["/proc", "/sys", "/dev"];

struct Packer<'a> {
    archive: Builder<BufWriter<&'a mut File>>,
    device: u64,
    left: usize,
}

/// Writes an archive of a file or directory; links stay links and other file systems stay out.
pub(super) fn pack(path: &str, out: &mut File) -> FileResult<()> {
    let at = open_in_root(path, OFlags::PATH)?;
    let stat = rustix::fs::fstat(&at)?;
    let real =
        rustix::fs::readlink(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&at)), Vec::new())?;
    let real = real.to_string_lossy().into_owned();
    let mut packer = Packer {
        archive: Builder::new(BufWriter::with_capacity(64 << 10, out)),
        device: stat.st_dev,
        left: MAX_ENTRIES,
    };
    if FileType::from_raw_mode(stat.st_mode).is_dir() {
        let dir = openat(&at, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        packer.directory(&dir, &real, Path::new("."), 0)?;
    } else {
        let (dir, name) = super::path::parent(&real, false)?;
        packer.entry(&dir, OsStr::new(&name), &real, Path::new(&name), 0)?;
    }
    packer.archive.into_inner()?.flush()?;
    Ok(())
}

impl Packer<'_> {
    fn directory(&mut self, dir: &OwnedFd, real: &str, inside: &Path, depth: usize) -> FileResult<()> {
        if SKIPPED.contains(&real) || depth > MAX_DEPTH {
            return Ok(());
        }
        let stat = rustix::fs::fstat(dir)?;
        if stat.st_dev != self.device {
            return Ok(());
        }
        self.append(header(&stat, EntryType::Directory, 0), inside, io::empty())?;
        let mut names: Vec<Vec<u8>> = Vec::new();
        for item in Dir::read_from(dir)? {
            names.push(item?.file_name().to_bytes().to_vec());
        }
        names.retain(|name| name != b"." && name != b"..");
        names.sort();
        for name in names {
            let name = OsStr::from_bytes(&name);
            let below = format!("{}/{}", real.trim_end_matches('/'), name.to_string_lossy());
            self.entry(dir, name, &below, &inside.join(name), depth + 1)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        dir: &OwnedFd,
        name: &OsStr,
        real: &str,
        inside: &Path,
        depth: usize,
    ) -> FileResult<()> {
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| FileError::new(ErrorKind::TooLarge, "too many entries"))?;
        let Ok(stat) = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(()) };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                self.directory(&openat(dir, name, flags, Mode::empty())?, real, inside, depth)
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = File::from(openat(dir, name, flags, Mode::empty())?);
                let stat = rustix::fs::fstat(&file)?;
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                // A file that shrinks while it is read is filled up, or the archive would be broken.
                let content = file.take(size).chain(io::repeat(0)).take(size);
                self.append(header(&stat, EntryType::Regular, size), inside, content)
            }
            FileType::Symlink => {
                let link = readlinkat(dir, name, Vec::new())?;
                let mut header = header(&stat, EntryType::Symlink, 0);
                let target = Path::new(OsStr::from_bytes(link.to_bytes())).to_owned();
                Ok(self.archive.append_link(&mut header, inside, target)?)
            }
            // Sockets, pipes and devices mean nothing elsewhere.
            _ => Ok(()),
        }
    }

    fn append(&mut self, mut header: Header, inside: &Path, content: impl Read) -> FileResult<()> {
        Ok(self.archive.append_data(&mut header, inside, content)?)
    }
}

fn header(stat: &rustix::fs::Stat, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(stat.st_mode & 0o777);
    header.set_uid(u64::from(stat.st_uid));
    header.set_gid(u64::from(stat.st_gid));
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header
}

/// Unpacks an archive below `path`.
pub(super) fn unpack(path: &str, input: &mut File) -> FileResult<()> {
    make_directories(path)?;
    let root = open_in_root(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut archive = Archive::new(BufReader::with_capacity(64 << 10, input));
    let mut count = 0;
    for entry in archive.entries()? {
        let mut entry = entry.map_err(broken)?;
        count += 1;
        if count > MAX_ENTRIES {
            return Err(FileError::new(
                ErrorKind::TooLarge,
                format!("the archive has more than {MAX_ENTRIES} entries"),
            ));
        }
        let inside = clean(&entry.path_bytes())?;
        let kind = entry.header().entry_type();
        let mode = entry.header().mode().unwrap_or(0o644) & 0o777;
        match kind {
            EntryType::Directory => directory(&root, &inside, mode)?,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                file(&root, &inside, mode, &mut entry)?
            }
            EntryType::Symlink => {
                let target = entry
                    .link_name_bytes()
                    .ok_or_else(|| unsafe_entry(&inside, "it is a link to nowhere"))?;
                let (dir, name) = place(&root, &inside)?;
                symlinkat(Path::new(OsStr::from_bytes(&target)), &dir, name)?;
            }
            EntryType::Link => {
                let target = entry
                    .link_name_bytes()
                    .ok_or_else(|| unsafe_entry(&inside, "it is a link to nowhere"))?;
                hard_link(&root, &inside, &clean(&target)?)?;
            }
            EntryType::XGlobalHeader => {}
            _ => return Err(unsafe_entry(&inside, "devices, pipes and other special files are refused")),
        }
    }
    Ok(())
}

fn broken(error: io::Error) -> FileError {
    FileError::new(ErrorKind::InvalidSpec, format!("the archive is broken: {error}"))
}

fn unsafe_entry(path: &Path, reason: &str) -> FileError {
    FileError::new(ErrorKind::UnsafePath, format!("entry `{}`: {reason}", path.display()))
}

/// An entry's path below the target: relative, without `..`, without NUL.
fn clean(bytes: &[u8]) -> FileResult<PathBuf> {
    let path = Path::new(OsStr::from_bytes(bytes));
    if bytes.contains(&0) || bytes.len() > crate::spec::MAX_PATH_BYTES {
        return Err(unsafe_entry(path, "its name is too long or contains a NUL byte"));
    }
    let mut cleaned = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => cleaned.push(name),
            Component::CurDir => {}
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => {
                return Err(unsafe_entry(path, "it leads out of the target"));
            }
        }
    }
    Ok(cleaned)
}

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

fn open_beneath(root: &OwnedFd, path: &Path) -> FileResult<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    openat2(root, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), BENEATH).map_err(
        |error| match error {
            rustix::io::Errno::LOOP => unsafe_entry(path, "it would be written through a link"),
            error => error.into(),
        },
    )
}

/// Makes the directories above an entry, links not followed, and removes what is in its place.
fn place<'p>(root: &OwnedFd, path: &'p Path) -> FileResult<(OwnedFd, &'p OsStr)> {
    let name = path.file_name().ok_or_else(|| unsafe_entry(path, "it has no name"))?;
    let above = path.parent().unwrap_or(Path::new(""));
    let dir = match open_beneath(root, above) {
        Err(error) if error.errno == Some(libc::ENOENT) => {
            directory(root, above, 0o755)?;
            open_beneath(root, above)?
        }
        other => other?,
    };
    match unlinkat(&dir, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok((dir, name)),
        Err(error) => Err(error.into()),
    }
}

fn directory(root: &OwnedFd, path: &Path, mode: u32) -> FileResult<()> {
    let mut at = root.as_fd().try_clone_to_owned()?;
    for (index, component) in path.components().enumerate() {
        if index > MAX_DEPTH {
            return Err(unsafe_entry(path, "it is too deep"));
        }
        let name = component.as_os_str();
        match mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        at = open_beneath(&at, Path::new(name))?;
    }
    // Writable for its owner whatever the archive says, or its own entries could not be put there.
    if !path.as_os_str().is_empty() {
        let opened = openat(&at, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let _ = fchmod(&opened, Mode::from_raw_mode(mode | 0o700));
    }
    Ok(())
}

fn file(root: &OwnedFd, path: &Path, mode: u32, content: &mut impl Read) -> FileResult<()> {
    let (dir, name) = place(root, path)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(&dir, name, flags, Mode::RUSR | Mode::WUSR)?);
    io::copy(content, &mut file)?;
    Ok(fchmod(&file, Mode::from_raw_mode(mode))?)
}

/// A hard link to another entry of the same archive; its target is looked up without links.
fn hard_link(root: &OwnedFd, path: &Path, target: &Path) -> FileResult<()> {
    let above = open_beneath(root, target.parent().unwrap_or(Path::new("")))?;
    let target_name = target.file_name().ok_or_else(|| unsafe_entry(path, "it is a link to nowhere"))?;
    let stat = statat(&above, target_name, AtFlags::SYMLINK_NOFOLLOW)?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(unsafe_entry(path, "it is a hard link to something that is no file"));
    }
    if target == path {
        return Err(unsafe_entry(path, "it is a hard link to itself"));
    }
    let (dir, name) = place(root, path)?;
    Ok(linkat(&above, target_name, &dir, name, AtFlags::empty())?)
}
