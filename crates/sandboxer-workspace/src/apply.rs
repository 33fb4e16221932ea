//! Small changes to a folder here: what a plan deletes and packs.

use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Stat};
use sandboxer_core::Result;
use tar::Builder;

use crate::fd;
use crate::manifest::{Entry, Kind};
use crate::pack::{Packed, add, cannot};
use crate::scan::{Scan, Stamp};
use crate::walk::{Item, Omissions, What, Why};

/// Whether what is in a place is still what the scan saw there. Nobody's later change is replaced or deleted.
pub fn as_scanned(scan: &Scan, path: &Path, there: Option<&Stat>) -> bool {
    let known = path.to_str().and_then(|path| Some((path, scan.manifest.get(path)?)));
    match (known, there) {
        (None, None) => true,
        (Some((path, Entry { kind: Kind::File, .. })), Some(stat)) => {
            fd::kind(stat) == FileType::RegularFile && scan.stamp(path) == Some(&Stamp::of(stat))
        }
        (Some((_, Entry { kind: Kind::Link, .. })), Some(stat)) => fd::kind(stat) == FileType::Symlink,
        (Some((_, Entry { kind: Kind::Dir, .. })), Some(stat)) => fd::kind(stat) == FileType::Directory,
        // What was deleted meanwhile may come back; what appeared meanwhile stays.
        (Some(_), None) => true,
        (None, Some(_)) => false,
    }
}

/// Deletes paths that are still as scanned. A folder goes only when it is empty. Paths come innermost first.
pub fn delete(folder: &Path, paths: &[String], scan: &Scan) -> Result<Omissions> {
    let mut kept = Omissions::default();
    let root = open(folder)?;
    for path in paths.iter().map(Path::new) {
        let Ok((dir, name)) = fd::parent(root.as_fd(), path) else { continue };
        let Ok(stat) = fd::stat(dir.as_fd(), &name) else { continue };
        if !as_scanned(scan, path, Some(&stat)) {
            kept.add(path, Why::Changed);
            continue;
        }
        let is_dir = fd::kind(&stat) == FileType::Directory;
        let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(&dir, &name, flags) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            // Something that no rule carries is still in it.
            Err(rustix::io::Errno::NOTEMPTY | rustix::io::Errno::EXIST) if is_dir => {}
            Err(error) => return Err(cannot(format!("{} cannot be deleted", path.display()), error.into())),
        }
    }
    Ok(kept)
}

/// Makes folders where there is nothing. Paths come outermost first.
pub fn make_dirs(folder: &Path, paths: &[String]) -> Result<()> {
    let root = open(folder)?;
    for path in paths.iter().map(Path::new) {
        let made = fd::parent(root.as_fd(), path).and_then(|(dir, name)| {
            match rustix::fs::mkdirat(&dir, &name, rustix::fs::Mode::from_raw_mode(0o755)) {
                Err(rustix::io::Errno::EXIST) => Ok(()),
                other => Ok(other?),
            }
        });
        match made {
            Ok(()) => {}
            // What is in the way is somebody's later change; the next look sees it.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::NotFound) => {}
            Err(error) => return Err(cannot(format!("{} cannot be made", path.display()), error)),
        }
    }
    Ok(())
}

/// Packs these paths of a scanned folder, in their order.
pub fn pack_paths(folder: &Path, paths: &[String], scan: &Scan, to: impl Write) -> Result<Packed> {
    let root = open(folder)?;
    let mut builder = Builder::new(to);
    let (mut packed, mut omitted) = (Packed::default(), Omissions::default());
    for text in paths {
        let path = Path::new(text);
        let Some(entry) = scan.manifest.get(text) else { continue };
        let found = fd::parent(root.as_fd(), path)
            .and_then(|(dir, name)| fd::stat(dir.as_fd(), &name).map(|stat| (dir, name, stat)));
        let Ok((dir, name, stat)) = found else {
            omitted.add(path, Why::Changed);
            continue;
        };
        let what = match (entry.kind, fd::kind(&stat)) {
            (Kind::File, FileType::RegularFile) => What::File,
            (Kind::Dir, FileType::Directory) => What::Dir,
            (Kind::Link, FileType::Symlink) => What::Link(entry.content.clone().into()),
            _ => {
                omitted.add(path, Why::Changed);
                continue;
            }
        };
        let item = Item { dir: dir.as_fd(), name: &name, path, stat, what };
        add(&mut builder, &item, true, &mut packed, &mut omitted)?;
    }
    builder.finish().map_err(|source| cannot("the archive cannot be finished".into(), source))?;
    packed.omitted = omitted;
    Ok(packed)
}

/// Removes what an interrupted run left half written.
pub fn sweep_unfinished(folder: &Path, scan: &Scan) -> Result<()> {
    if scan.unfinished.is_empty() {
        return Ok(());
    }
    let root = open(folder)?;
    for path in &scan.unfinished {
        if let Ok((dir, name)) = fd::parent(root.as_fd(), path) {
            let _ = rustix::fs::unlinkat(dir, &name, AtFlags::empty());
        }
    }
    Ok(())
}

fn open(folder: &Path) -> Result<std::os::fd::OwnedFd> {
    fd::open_root(folder).map_err(|source: io::Error| {
        cannot(format!("{} cannot be used as a folder", folder.display()), source)
    })
}
