//! Writes what a tar holds into a folder. The tar is a stranger's: nothing is written outside, nothing half.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use sandboxer_core::{Error, ErrorKind, Result};
use tar::{Archive, Entry, EntryType};

use crate::fd;
use crate::ignored::UNFINISHED;
use crate::link::stays_inside;
use crate::pack::cannot;
use crate::rules::Limits;
use crate::walk::{Omissions, Why};

/// What was written.
#[derive(Clone, Debug, Default)]
pub struct Unpacked {
    pub entries: u64,
    pub bytes: u64,
    pub omitted: Omissions,
}

/// The caller's word about an archive that it asked for.
pub struct Guard<'a> {
    /// Whether an entry of this path was asked for. Any other is passed over.
    pub wanted: &'a dyn Fn(&Path) -> bool,
    /// Asked before something is put in a place, with what is there now. `false` leaves it as it is.
    pub may_replace: &'a dyn Fn(&Path, Option<&Stat>) -> bool,
}

/// Unpacks into `folder`, which exists. A name that leads out is an error; links that lead out, devices and pipes are left
/// out and reported. Each file appears whole or not at all.
pub fn unpack(tar: impl Read, folder: &Path, limits: &Limits) -> Result<Unpacked> {
    unpack_where(tar, folder, limits, &Guard { wanted: &|_| true, may_replace: &|_, _| true })
}

/// The same, where the caller has a word about what may be replaced.
pub fn unpack_where(tar: impl Read, folder: &Path, limits: &Limits, guard: &Guard<'_>) -> Result<Unpacked> {
    let root = fd::open_root(folder)
        .map_err(|source| cannot(format!("{} cannot be used as a folder", folder.display()), source))?;
    let target = Target { root, limits, guard };
    let mut done = Unpacked::default();
    let broken = |source: io::Error| {
        Error::new(ErrorKind::BackendFailed, "what came is not a whole archive").with_source(source)
    };
    let mut archive = Archive::new(tar);
    // Several archives one after the other count as one.
    archive.set_ignore_zeros(true);
    let mut seen = 0;
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        seen += 1;
        if seen > limits.entries {
            return Err(too_large(format!("it holds more than {} entries", limits.entries)));
        }
        let name = entry.path().map_err(broken)?.into_owned();
        let name = plain(&name, limits)?;
        if name.as_os_str().is_empty() || !(guard.wanted)(&name) {
            continue;
        }
        target.put(&mut entry, &name, &mut done)?;
    }
    Ok(done)
}

struct Target<'a> {
    root: OwnedFd,
    limits: &'a Limits,
    guard: &'a Guard<'a>,
}

impl Target<'_> {
    fn put<R: Read>(&self, entry: &mut Entry<'_, R>, name: &Path, done: &mut Unpacked) -> Result<()> {
        let failed = |source| cannot(format!("{} cannot be written", name.display()), source);
        let kind = entry.header().entry_type();
        let link = match entry.link_name() {
            Ok(link) => link.map(std::borrow::Cow::into_owned),
            Err(source) => return Err(failed(source)),
        };
        let why = match (kind, &link) {
            (EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse, _) => None,
            (EntryType::Directory, _) => None,
            (EntryType::Symlink, Some(to)) => (!stays_inside(name, to)).then_some(Why::LeadsOut),
            (EntryType::Link, Some(to)) => plain(to, self.limits).is_err().then_some(Why::LeadsOut),
            _ => Some(Why::Special),
        };
        if let Some(why) = why {
            done.omitted.add(name, why);
            return Ok(());
        }
        let (dir, last) = match self.parent(name) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory || is_loop(&error) => {
                done.omitted.add(name, Why::Changed);
                return Ok(());
            }
            Err(error) => return Err(failed(error)),
        };
        let there = fd::stat(dir.as_fd(), &last).ok();
        let is_folder = there.as_ref().is_some_and(|stat| fd::kind(stat) == FileType::Directory);
        let blocked = if kind == EntryType::Directory { there.is_some() && !is_folder } else { is_folder };
        if blocked || !(is_folder || (self.guard.may_replace)(name, there.as_ref())) {
            done.omitted.add(name, Why::Changed);
            return Ok(());
        }
        let bytes = match kind {
            EntryType::Directory if is_folder => Ok(Some(0)),
            EntryType::Directory => make_dir(dir.as_fd(), &last).map(|()| Some(0)),
            EntryType::Symlink => self.link(&dir, &last, &link.unwrap_or_default()).map(|()| Some(0)),
            EntryType::Link => self.copy(&dir, &last, name, &link.unwrap_or_default()),
            _ => {
                let room = self.limits.bytes.saturating_sub(done.bytes);
                if entry.size() > room {
                    return Err(too_large(format!("it holds more than {} bytes", self.limits.bytes)));
                }
                let exec = entry.header().mode().unwrap_or(0) & 0o100 != 0;
                self.file(&dir, &last, name, exec, entry)
            }
        };
        match bytes.map_err(failed)? {
            Some(bytes) => {
                done.bytes += bytes;
                done.entries += 1;
            }
            None => done.omitted.add(name, Why::Changed),
        }
        Ok(())
    }

    /// Opens the folder of a path, and makes what is missing of it. No step follows a link.
    fn parent(&self, path: &Path) -> io::Result<(OwnedFd, CString)> {
        let mut dir = self.root.as_fd().try_clone_to_owned()?;
        let mut parts = path.iter().peekable();
        while let Some(part) = parts.next() {
            let name = CString::new(part.as_bytes())?;
            if parts.peek().is_none() {
                return Ok((dir, name));
            }
            dir = match fd::open_dir(dir.as_fd(), &name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    make_dir(dir.as_fd(), &name)?;
                    fd::open_dir(dir.as_fd(), &name)?
                }
                other => other?,
            };
        }
        Err(io::Error::other("an empty path"))
    }

    fn file(
        &self,
        dir: &OwnedFd,
        name: &CStr,
        path: &Path,
        exec: bool,
        from: &mut impl Read,
    ) -> io::Result<Option<u64>> {
        let unfinished = unfinished_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(dir, &unfinished, flags, Mode::RUSR | Mode::WUSR)?);
        let written = io::copy(from, &mut file).and_then(|bytes| {
            file.flush()?;
            let mode = if exec { 0o755 } else { 0o644 };
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
            // Asked again at the last moment: writing may have taken a while.
            let there = fd::stat(dir.as_fd(), name).ok();
            if !(self.guard.may_replace)(path, there.as_ref()) {
                return Ok(None);
            }
            rustix::fs::renameat(dir, &unfinished, dir, name)?;
            Ok(Some(bytes))
        });
        if !matches!(written, Ok(Some(_))) {
            let _ = rustix::fs::unlinkat(dir, &unfinished, AtFlags::empty());
        }
        written
    }

    fn link(&self, dir: &OwnedFd, name: &CStr, target: &Path) -> io::Result<()> {
        let unfinished = unfinished_name();
        rustix::fs::symlinkat(target, dir, &unfinished)?;
        let renamed = rustix::fs::renameat(dir, &unfinished, dir, name);
        if renamed.is_err() {
            let _ = rustix::fs::unlinkat(dir, &unfinished, AtFlags::empty());
        }
        Ok(renamed?)
    }

    /// A hard link becomes a file of its own, with the content of one that came earlier.
    fn copy(&self, dir: &OwnedFd, name: &CStr, path: &Path, of: &Path) -> io::Result<Option<u64>> {
        let of = plain(of, self.limits).map_err(io::Error::other)?;
        let (from_dir, from_name) = fd::parent(self.root.as_fd(), &of)?;
        let (mut from, stat) = fd::open_file(from_dir.as_fd(), &from_name)?;
        self.file(dir, name, path, stat.st_mode & 0o100 != 0, &mut from)
    }
}

fn make_dir(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    match rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o755)) {
        Err(rustix::io::Errno::EXIST) => Ok(()),
        other => Ok(other?),
    }
}

/// The name without `.`; an error for one that is absolute or climbs, or is nested too deeply.
fn plain(name: &Path, limits: &Limits) -> Result<PathBuf> {
    let mut out = PathBuf::new();
    for component in name.components() {
        match component {
            Component::Normal(part) => out.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                let name = sandboxer_core::suggest::printable(&name.to_string_lossy());
                let message = format!("the archive has an entry outside of it: `{name}`");
                return Err(
                    Error::new(ErrorKind::Denied, message).with_hint("nothing of that entry was written")
                );
            }
        }
    }
    if out.components().count() > limits.depth + 1 {
        return Err(too_large(format!("folders are nested deeper than {}", limits.depth)));
    }
    Ok(out)
}

fn unfinished_name() -> CString {
    let mut bytes = [0_u8; 8];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    CString::new(format!("{UNFINISHED}{:016x}", u64::from_ne_bytes(bytes))).unwrap_or_default()
}

fn is_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

fn too_large(why: String) -> Error {
    Error::new(ErrorKind::TooLarge, format!("the archive is too large: {why}"))
}
