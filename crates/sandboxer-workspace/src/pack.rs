//! A folder as a tar file. Equal folders give equal archives.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use rustix::fs::Stat;
use sandboxer_core::{Error, ErrorKind, Result};
use tar::{Builder, EntryType, Header};

use crate::fd;
use crate::rules::Rules;
use crate::walk::{Item, Omissions, Walk, What, Why};

/// What is in the archive.
#[derive(Clone, Debug, Default)]
pub struct Packed {
    pub entries: u64,
    /// Of contents, before the tar's own.
    pub bytes: u64,
    /// What was left out although no rule ignores it: links that lead out, devices, unreadable files.
    pub omitted: Omissions,
}

/// Packs what belongs to the folder into a new file at `to`, readable by its owner alone. A file that cannot be finished
/// is removed again.
pub fn pack(folder: &Path, rules: &Rules, to: &Path) -> Result<Packed> {
    let failed =
        |source: io::Error| cannot(format!("the archive {} cannot be written", to.display()), source);
    let file = rustix::fs::open(
        to,
        rustix::fs::OFlags::WRONLY
            | rustix::fs::OFlags::CREATE
            | rustix::fs::OFlags::TRUNC
            | rustix::fs::OFlags::NOFOLLOW
            | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    )
    .map_err(|source| failed(source.into()))?;
    let mut out = BufWriter::with_capacity(256 << 10, File::from(file));
    let packed =
        pack_to(folder, rules, &mut out).and_then(|packed| out.flush().map(|()| packed).map_err(failed));
    if packed.is_err() {
        let _ = std::fs::remove_file(to);
    }
    packed
}

/// Packs into any writer. Names are relative to the folder; the folder itself is not among them.
pub fn pack_to(folder: &Path, rules: &Rules, to: impl Write) -> Result<Packed> {
    let mut builder = Builder::new(to);
    let mut packed = Packed::default();
    let mut walk = Walk::new(rules);
    walk.run(folder, &mut |item, omitted| add(&mut builder, item, rules.times, &mut packed, omitted))?;
    builder.finish().map_err(|source| cannot("the archive cannot be finished".into(), source))?;
    packed.omitted = walk.omitted;
    Ok(packed)
}

pub(crate) fn add(
    builder: &mut Builder<impl Write>,
    item: &Item<'_>,
    times: bool,
    packed: &mut Packed,
    omitted: &mut Omissions,
) -> Result<()> {
    let failed = |source| cannot(format!("{} cannot be packed", item.path.display()), source);
    match &item.what {
        What::Dir => {
            let mut header = header(&item.stat, EntryType::Directory, 0o755, times);
            builder.append_data(&mut header, item.path, io::empty()).map_err(failed)?;
        }
        What::Link(target) => {
            let mut header = header(&item.stat, EntryType::Symlink, 0o777, times);
            builder.append_link(&mut header, item.path, target).map_err(failed)?;
        }
        What::File => {
            let (file, stat) = match fd::open_file(item.dir, item.name) {
                Ok(opened) => opened,
                Err(error) => {
                    let denied = error.kind() == io::ErrorKind::PermissionDenied;
                    omitted.add(item.path, if denied { Why::Unreadable } else { Why::Changed });
                    return Ok(());
                }
            };
            // The length is promised before the content: a file that changes meanwhile is cut or filled up to it.
            let length = u64::try_from(stat.st_size).unwrap_or(0);
            let mode = if stat.st_mode & 0o100 == 0 { 0o644 } else { 0o755 };
            let mut header = header(&stat, EntryType::Regular, mode, times);
            header.set_size(length);
            let content = file.chain(io::repeat(0)).take(length);
            builder.append_data(&mut header, item.path, content).map_err(failed)?;
            packed.bytes += length;
        }
    }
    packed.entries += 1;
    Ok(())
}

/// No owner, no group, one of two modes: only what means the same elsewhere.
fn header(stat: &Stat, kind: EntryType, mode: u32, times: bool) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(if times { u64::try_from(stat.st_mtime).unwrap_or(0) } else { 0 });
    header
}

pub(crate) fn cannot(message: String, source: io::Error) -> Error {
    let kind = match source.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        _ => ErrorKind::BackendFailed,
    };
    Error::new(kind, message).with_source(source)
}
