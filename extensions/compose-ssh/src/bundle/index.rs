//! What is in the bundle, and where a path leads in it.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};
use tar::EntryType;

const MAX_ENTRIES: usize = 500_000;
/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File { offset: u64, size: u64 },
    Directory,
    Link(String),
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Located {
    /// A file or folder of the bundle; the root is the empty path.
    Inside {
        path: String,
        directory: bool,
    },
    /// Nothing is there yet; the path itself stays inside.
    Missing {
        path: String,
    },
    Outside,
}

/// Paths as the tar has them, without `./` and trailing slashes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    entries: BTreeMap<String, Kind>,
}

impl Index {
    /// Reads the whole tar and refuses what could leave the folder it is unpacked in.
    pub(crate) fn read(tar: impl Read + Seek) -> Result<Self> {
        let broken = |source| {
            Error::new(ErrorKind::InvalidInput, "the bundle is not a readable tar")
                .with_source(source)
                .with_hint("it must be a plain tar, not a compressed one")
        };
        let mut archive = tar::Archive::new(tar);
        let mut index = Self::default();
        for entry in archive.entries_with_seek().map_err(broken)? {
            let entry = entry.map_err(broken)?;
            let raw = entry.path_bytes();
            let path = std::str::from_utf8(&raw).map_err(|_| refuse("a name that is not UTF-8"))?;
            let Some(path) = clean(path)? else { continue };
            let kind = match entry.header().entry_type() {
                EntryType::Regular | EntryType::Continuous => {
                    Kind::File { offset: entry.raw_file_position(), size: entry.size() }
                }
                EntryType::Directory => Kind::Directory,
                EntryType::Symlink => {
                    let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                    let target = String::from_utf8(target).map_err(|_| refuse("a link that is not UTF-8"))?;
                    Kind::Link(target)
                }
                EntryType::XGlobalHeader => continue,
                _ => return Err(refuse(&format!("`{}`, a hard link or a special file", printable(&path)))),
            };
            index.insert(path, kind)?;
        }
        Ok(index)
    }

    fn insert(&mut self, path: String, kind: Kind) -> Result<()> {
        let mut above = path.as_str();
        while let Some((parent, _)) = above.rsplit_once('/') {
            match self.entries.get(parent) {
                Some(Kind::Directory) => break,
                None => {
                    self.entries.insert(parent.to_owned(), Kind::Directory);
                }
                // Unpacking it would write through the link.
                Some(_) => {
                    return Err(refuse(&format!(
                        "`{}`, below something that is no folder",
                        printable(&path)
                    )));
                }
            }
            above = parent;
        }
        let replaces_folder =
            matches!(self.entries.get(&path), Some(Kind::Directory)) && kind != Kind::Directory;
        let replaces_link = matches!(self.entries.get(&path), Some(Kind::Link(_)));
        if replaces_folder || replaces_link {
            return Err(refuse(&format!("`{}` twice, as different things", printable(&path))));
        }
        self.entries.insert(path, kind);
        if self.entries.len() > MAX_ENTRIES {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("the bundle has more than {MAX_ENTRIES} entries"),
            ));
        }
        Ok(())
    }

    pub(crate) fn kind(&self, path: &str) -> Option<&Kind> {
        self.entries.get(path)
    }

    pub(crate) fn is_file(&self, path: &str) -> bool {
        matches!(self.entries.get(path), Some(Kind::File { .. }))
    }

    /// Names at the top, for hints.
    pub(crate) fn top(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str).filter(|path| !path.contains('/'))
    }

    /// Where `path`, written relative to the folder `base` of the bundle, leads once every link is followed.
    pub(crate) fn locate(&self, base: &str, path: &str) -> Located {
        if path.starts_with(['/', '~']) || path.contains('\0') {
            return Located::Outside;
        }
        let mut links = 0;
        let mut pending: Vec<String> = pieces(path).rev().collect();
        pending.extend(pieces(base).rev());
        let mut here: Vec<String> = Vec::new();
        while let Some(piece) = pending.pop() {
            match piece.as_str() {
                "." => continue,
                ".." => {
                    if here.pop().is_none() {
                        return Located::Outside;
                    }
                    continue;
                }
                _ => here.push(piece),
            }
            if let Some(Kind::Link(target)) = self.entries.get(&here.join("/")) {
                links += 1;
                if links > MAX_LINKS || target.starts_with('/') {
                    return Located::Outside;
                }
                here.pop();
                pending.extend(pieces(target).rev());
            }
        }
        let path = here.join("/");
        if path.is_empty() {
            return Located::Inside { path, directory: true };
        }
        match self.entries.get(&path) {
            Some(kind) => Located::Inside { directory: *kind == Kind::Directory, path },
            None => Located::Missing { path },
        }
    }
}

fn pieces(path: &str) -> impl DoubleEndedIterator<Item = String> + '_ {
    path.split('/').filter(|piece| !piece.is_empty()).map(str::to_owned)
}

/// The path without `./`; `None` for the root itself.
fn clean(path: &str) -> Result<Option<String>> {
    let shown = printable(path);
    if path.starts_with('/') || path.contains(['\0', '\n']) || path.len() > 4_095 {
        return Err(refuse(&format!("`{shown}`, a path that cannot be unpacked")));
    }
    let mut out = Vec::new();
    for piece in path.split('/') {
        match piece {
            "" | "." => {}
            ".." => return Err(refuse(&format!("`{shown}`, a path that leads out of it"))),
            piece => out.push(piece),
        }
    }
    Ok((!out.is_empty()).then(|| out.join("/")))
}

fn refuse(what: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("the bundle contains {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        let mut index = Index::default();
        for (path, kind) in [
            ("compose.yaml", Kind::File { offset: 0, size: 1 }),
            ("deploy/compose.yaml", Kind::File { offset: 0, size: 1 }),
            ("data", Kind::Directory),
            ("out", Kind::Link("/etc".into())),
            ("up", Kind::Link("../..".into())),
            ("loop", Kind::Link("loop".into())),
            ("deploy/shared", Kind::Link("../data".into())),
        ] {
            index.insert(path.into(), kind).unwrap();
        }
        index
    }

    #[test]
    fn paths_are_followed_to_where_they_lead() {
        let index = index();
        let inside = |path: &str, directory| Located::Inside { path: path.into(), directory };
        assert_eq!(index.locate("", "./data/"), inside("data", true));
        assert_eq!(index.locate("deploy", "../data"), inside("data", true));
        assert_eq!(index.locate("deploy", "shared"), inside("data", true));
        assert_eq!(index.locate("deploy", "shared/new"), Located::Missing { path: "data/new".into() });
        assert_eq!(index.locate("", "."), inside("", true));
        assert_eq!(index.locate("", "compose.yaml"), inside("compose.yaml", false));
    }

    #[test]
    fn whatever_leads_out_is_outside() {
        let index = index();
        for path in
            ["/etc", "~/x", "..", "data/../..", "out", "out/passwd", "up/x", "loop", "data/../out/../x"]
        {
            assert_eq!(index.locate("", path), Located::Outside, "{path}");
        }
    }

    #[test]
    fn a_tar_that_could_leave_its_folder_is_refused() {
        let tar_of = |entries: &[(&str, EntryType, &str)]| {
            let mut builder = tar::Builder::new(Vec::new());
            for (path, kind, target) in entries {
                let mut header = tar::Header::new_old();
                let name = &mut header.as_old_mut().name;
                name[..path.len()].copy_from_slice(path.as_bytes());
                header.set_entry_type(*kind);
                header.set_size(0);
                if !target.is_empty() {
                    header.set_link_name_literal(target).unwrap();
                }
                header.set_cksum();
                builder.append(&header, std::io::empty()).unwrap();
            }
            std::io::Cursor::new(builder.into_inner().unwrap())
        };
        use EntryType::{Fifo, Link, Regular, Symlink};
        for bad in [
            &[("../x", Regular, "")][..],
            &[("/x", Regular, "")],
            &[("x", Link, "y")],
            &[("x", Fifo, "")],
            &[("x", Symlink, "/etc"), ("x/passwd", Regular, "")],
            &[("x", Symlink, "/etc/passwd"), ("x", Regular, "")],
        ] {
            assert_eq!(Index::read(tar_of(bad)).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        assert!(Index::read(tar_of(&[("./a/b", Regular, "")])).unwrap().is_file("a/b"));
    }
}
