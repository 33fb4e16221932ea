//! Local folders as tar streams, in both directions. What comes out of a sandbox is not trusted.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Component, Path, PathBuf};

use sandboxer_core::{Error, ErrorKind, Result};
use tar::{Archive, Builder, Entry, EntryType, Header, HeaderMode};

use crate::status::io_error;

/// What was copied, and what had to be left out, with the reason.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
    pub(crate) left_out: Vec<String>,
}

/// Writes what is below `root` as a tar with names relative to it. Links stay links; owners are not told.
pub(crate) fn pack(root: &Path, to: impl Write) -> Result<Copied> {
    let mut builder = Builder::new(to);
    builder.follow_symlinks(false);
    let mut copied = Copied::default();
    pack_folder(&mut builder, root, Path::new(""), &mut copied)?;
    builder.finish().map_err(|source| io_error("the archive cannot be finished", source))?;
    Ok(copied)
}

fn pack_folder(
    builder: &mut Builder<impl Write>,
    root: &Path,
    below: &Path,
    copied: &mut Copied,
) -> Result<()> {
    let folder = root.join(below);
    let unreadable = |source| io_error(format!("{} cannot be read", folder.display()), source);
    let mut names: Vec<_> = fs::read_dir(&folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>())
        .map_err(unreadable)?;
    names.sort();
    for name in names {
        pack_entry(builder, root, &below.join(name), copied)?;
    }
    Ok(())
}

fn pack_entry(
    builder: &mut Builder<impl Write>,
    root: &Path,
    name: &Path,
    copied: &mut Copied,
) -> Result<()> {
    let path = root.join(name);
    let failed = |source| io_error(format!("{} cannot be copied", path.display()), source);
    let metadata = fs::symlink_metadata(&path).map_err(failed)?;
    let kind = metadata.file_type();
    if kind.is_socket() || kind.is_fifo() || kind.is_block_device() || kind.is_char_device() {
        copied.left_out.push(format!("{}: neither a file, a folder nor a link", path.display()));
        return Ok(());
    }
    let mut header = Header::new_gnu();
    header.set_metadata_in_mode(&metadata, HeaderMode::Complete);
    header.set_uid(0);
    header.set_gid(0);
    copied.entries += 1;
    if kind.is_dir() {
        builder.append_data(&mut header, name, io::empty()).map_err(failed)?;
        return pack_folder(builder, root, name, copied);
    }
    if kind.is_symlink() {
        header.set_size(0);
        let target = fs::read_link(&path).map_err(failed)?;
        return builder.append_link(&mut header, name, target).map_err(failed);
    }
    // The length is promised before the content: a file that changes meanwhile is cut or filled up to it.
    let length = metadata.len();
    header.set_size(length);
    let content = fs::File::open(&path).map_err(failed)?.chain(io::repeat(0)).take(length);
    copied.bytes += length;
    builder.append_data(&mut header, name, content).map_err(failed)
}

/// Unpacks a tar into `root`, which exists. Nothing is written outside it, whatever the tar says.
pub(crate) fn unpack(from: impl Read, root: &Path) -> Result<Copied> {
    let root = &fs::canonicalize(root)
        .map_err(|source| io_error(format!("{} cannot be used", root.display()), source))?;
    let mut copied = Copied::default();
    let mut folders = Vec::new();
    let mut archive = Archive::new(from);
    let broken = |source| io_error("what the sandbox sent is not a whole archive", source);
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let name = entry.path().map_err(broken)?.into_owned();
        let Some(name) = inside(&name) else {
            return Err(Error::new(
                ErrorKind::Denied,
                format!(
                    "the archive has an entry outside of it: `{}`",
                    sandboxer_core::suggest::printable(&name.to_string_lossy())
                ),
            )
            .with_hint("nothing of that entry was written"));
        };
        if name.as_os_str().is_empty() {
            continue;
        }
        if let Some(why) = left_out(&entry, &name) {
            copied.left_out.push(format!("{}: {why}", name.display()));
            continue;
        }
        if entry.header().entry_type() == EntryType::Directory {
            // A folder without write permission could not be filled: folders come last, the innermost first.
            folders.push((entry, name));
            continue;
        }
        unpack_entry(&mut entry, &name, root, &mut copied)?;
    }
    for (mut entry, name) in folders.into_iter().rev() {
        unpack_entry(&mut entry, &name, root, &mut copied)?;
    }
    Ok(copied)
}

fn unpack_entry<R: Read>(
    entry: &mut Entry<'_, R>,
    name: &Path,
    root: &Path,
    copied: &mut Copied,
) -> Result<()> {
    let written = entry
        .unpack_in(root)
        .map_err(|source| io_error(format!("{} cannot be written", root.join(name).display()), source))?;
    if !written {
        copied.left_out.push(format!("{}: it leads out of the copied folder", name.display()));
        return Ok(());
    }
    copied.entries += 1;
    copied.bytes += entry.header().entry_size().unwrap_or(0);
    Ok(())
}

/// The name without `.`; nothing for one that is absolute or climbs.
fn inside(name: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for component in name.components() {
        match component {
            Component::Normal(part) => out.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(out)
}

/// Why an entry is not unpacked: it is no file, folder or link, or a link that leads out.
fn left_out<R: Read>(entry: &Entry<'_, R>, name: &Path) -> Option<&'static str> {
    match entry.header().entry_type() {
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse | EntryType::Directory => None,
        EntryType::Symlink => {
            let target = entry.link_name().ok().flatten()?;
            (!stays_inside(name, &target)).then_some("the link leads out of the copied folder")
        }
        EntryType::Link => {
            let target = entry.link_name().ok().flatten()?;
            inside(&target).is_none().then_some("the link leads out of the copied folder")
        }
        _ => Some("neither a file, a folder nor a link"),
    }
}

/// Whether a link at `name` leads to something below the root, by its text alone.
fn stays_inside(name: &Path, target: &Path) -> bool {
    let mut depth = name.components().count().saturating_sub(1);
    for component in target.components() {
        match component {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests;
