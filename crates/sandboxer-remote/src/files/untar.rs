//! Looks at every entry of an archive before the host sees it, and writes it again: nothing goes on that could plant
//! something outside the folder it is unpacked in.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::path::{Component, Path, PathBuf};

use sandboxer_core::exec::BoxRead;
use sandboxer_core::{Error, ErrorKind, Result};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

/// More entries than this are no workspace.
const MOST_ENTRIES: usize = 2_000_000;

/// The same archive, checked entry by entry while it passes. It breaks off where something is refused; the verdict
/// says why.
pub(super) fn filter(mut source: BoxRead) -> Result<(BoxRead, JoinHandle<Result<()>>)> {
    let broken = |source| Error::new(ErrorKind::Internal, "there are no pipes").with_source(source);
    let (raw, raw_in) = std::io::pipe().map_err(broken)?;
    let (clean_out, clean) = std::io::pipe().map_err(broken)?;
    let mut raw_in = pipe::Sender::from_owned_fd(raw_in.into()).map_err(broken)?;
    let clean_out = pipe::Receiver::from_owned_fd(clean_out.into()).map_err(broken)?;
    let pump = tokio::spawn(async move {
        tokio::io::copy(&mut source, &mut raw_in).await?;
        raw_in.shutdown().await
    });
    let check = tokio::task::spawn_blocking(move || rewrite(raw, clean));
    let verdict = tokio::spawn(async move {
        let checked = check
            .await
            .map_err(|source| Error::new(ErrorKind::Internal, "a check broke off").with_source(source))?;
        match pump.await {
            // Whatever follows the archive's end is nobody's.
            Ok(Err(error)) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(Error::new(ErrorKind::BackendFailed, "the archive broke off").with_source(error))
            }
            _ => checked,
        }
    });
    Ok((Box::pin(clean_out), verdict))
}

fn rewrite(source: impl Read, target: impl Write) -> Result<()> {
    let mut archive = tar::Archive::new(source);
    let mut out = tar::Builder::new(std::io::BufWriter::with_capacity(64 << 10, target));
    let mut links = HashSet::new();
    let entries = archive.entries().map_err(unreadable)?;
    for (count, entry) in entries.enumerate() {
        if count >= MOST_ENTRIES {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("the archive has more than {MOST_ENTRIES} entries"),
            ));
        }
        let mut entry = entry.map_err(unreadable)?;
        let path = entry.path().map_err(unreadable)?.into_owned();
        let Some(inside) = plain(&path) else {
            return Err(refuse(&path, "its name leads out of the folder"));
        };
        if inside.ancestors().skip(1).any(|above| links.contains(above)) {
            return Err(refuse(&path, "it lies behind a link of the same archive"));
        }
        let mut header = entry.header().clone();
        header.set_mode(header.mode().map_err(unreadable)? & 0o777);
        let kind = header.entry_type();
        let written = match kind {
            tar::EntryType::Directory if inside.as_os_str().is_empty() => Ok(()),
            tar::EntryType::Directory => out.append_data(&mut header, &inside, std::io::empty()),
            tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse => {
                header.set_entry_type(tar::EntryType::Regular);
                header.set_size(entry.size());
                links.remove(&inside);
                out.append_data(&mut header, &inside, &mut entry)
            }
            tar::EntryType::Symlink => {
                let target = entry.link_name().map_err(unreadable)?.unwrap_or_default().into_owned();
                if !stays(&inside, &target) {
                    return Err(refuse(&path, &format!("it is a link to `{}`, outside", target.display())));
                }
                links.insert(inside.clone());
                out.append_link(&mut header, &inside, &target)
            }
            tar::EntryType::XGlobalHeader => Ok(()),
            tar::EntryType::Link => return Err(refuse(&path, "it is a hard link")),
            _ => return Err(refuse(&path, "it is a device or something else that is no file")),
        };
        match written {
            // The host takes no more, and says why itself.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(unreadable)?,
        }
    }
    match out.into_inner().and_then(|mut out| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(unreadable(error)),
        _ => Ok(()),
    }
}

/// The path without `.`; nothing if it is absolute or goes up.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => out.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(out)
}

/// Whether a link's target is inside, whatever else is a link: it may go up only at its beginning, and no further than
/// the archive's own top.
fn stays(link: &Path, target: &Path) -> bool {
    let mut depth = link.components().count().saturating_sub(1);
    let mut going_down = false;
    for component in target.components() {
        match component {
            Component::ParentDir if going_down || depth == 0 => return false,
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => going_down = true,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

fn refuse(path: &Path, why: &str) -> Error {
    let path = sandboxer_core::suggest::printable(&path.to_string_lossy());
    Error::new(ErrorKind::Refused, format!("`{path}` in the archive is refused: {why}"))
}

fn unreadable(source: std::io::Error) -> Error {
    Error::new(ErrorKind::InvalidInput, "the archive cannot be read as a tar").with_source(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_or_are_refused() {
        for (link, target, stay) in [
            ("a", "b", true),
            ("a", "b/c", true),
            ("a", "..", false),
            ("d/a", "../b", true),
            ("d/a", "../../b", false),
            ("d/a", "/etc/passwd", false),
            // `x` may be a link to the top, so that going up behind it leaves.
            ("a", "x/../b", false),
            ("p/q/s", "../..", true),
        ] {
            assert_eq!(stays(Path::new(link), Path::new(target)), stay, "{link} -> {target}");
        }
    }
}
