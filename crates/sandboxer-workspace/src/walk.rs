//! Goes through a folder from open folder to open folder, in a fixed order, within bounds.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};
use sandboxer_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::fd;
use crate::ignored::IgnoreSet;
use crate::link::stays_inside;
use crate::rules::Rules;

/// How many are named in a report; the number of all is kept.
const NAMED: usize = 100;

/// Something that is not part of the workspace although no rule ignores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub path: String,
    pub why: Why,
}

/// Why it was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// A link that leads out of the folder.
    LeadsOut,
    /// A device, a pipe or a socket.
    Special,
    /// It cannot be read by whoever runs this.
    Unreadable,
    /// It changed its kind or went away while it was read.
    Changed,
    /// A name that cannot be carried: not UTF-8, or with control characters or backslashes.
    Name,
}

impl Why {
    pub fn text(self) -> &'static str {
        match self {
            Self::LeadsOut => "the link leads out of the folder",
            Self::Special => "neither a file, a folder nor a link",
            Self::Unreadable => "it cannot be read",
            Self::Changed => "it changed while it was read",
            Self::Name => "its name cannot be carried",
        }
    }
}

/// What was left out, bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Omissions {
    pub count: u64,
    pub named: Vec<LeftOut>,
    /// Every path, as it is: nothing may be concluded about what is there.
    #[serde(skip)]
    pub paths: Vec<String>,
}

impl Omissions {
    pub fn add(&mut self, path: &Path, why: Why) {
        self.count += 1;
        self.paths.push(path.to_string_lossy().into_owned());
        if self.named.len() < NAMED {
            let path = path.to_string_lossy().chars().flat_map(char::escape_debug).collect();
            self.named.push(LeftOut { path, why });
        }
    }

    pub fn extend(&mut self, other: Self) {
        self.count += other.count;
        self.paths.extend(other.paths);
        let room = NAMED.saturating_sub(self.named.len());
        self.named.extend(other.named.into_iter().take(room));
    }
}

/// One thing found, in an open folder.
pub(crate) struct Item<'a> {
    pub(crate) dir: BorrowedFd<'a>,
    pub(crate) name: &'a CStr,
    /// From the top.
    pub(crate) path: &'a Path,
    pub(crate) stat: Stat,
    pub(crate) what: What,
}

pub(crate) enum What {
    File,
    Dir,
    Link(PathBuf),
}

pub(crate) struct Walk<'a> {
    rules: &'a Rules,
    pub(crate) ignored: IgnoreSet,
    pub(crate) omitted: Omissions,
    /// Our own unfinished files of an earlier run.
    pub(crate) unfinished: Vec<PathBuf>,
    entries: u64,
    bytes: u64,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(rules: &'a Rules) -> Self {
        Self {
            rules,
            ignored: IgnoreSet::new(rules),
            omitted: Omissions::default(),
            unfinished: Vec::new(),
            entries: 0,
            bytes: 0,
        }
    }

    /// Calls `each` for everything below `folder` that belongs to it, folders before what is in them.
    pub(crate) fn run(
        &mut self,
        folder: &Path,
        each: &mut dyn FnMut(&Item<'_>, &mut Omissions) -> Result<()>,
    ) -> Result<()> {
        let unusable = |source: io::Error| {
            let kind = match source.kind() {
                io::ErrorKind::NotFound => ErrorKind::NotFound,
                io::ErrorKind::PermissionDenied => ErrorKind::Denied,
                _ => ErrorKind::InvalidInput,
            };
            Error::new(kind, format!("{} cannot be read as a folder", folder.display())).with_source(source)
        };
        let root = fd::open_root(folder).map_err(unusable)?;
        self.folder(root.as_fd(), Path::new(""), 0, each)
    }

    fn folder(
        &mut self,
        dir: BorrowedFd<'_>,
        at: &Path,
        depth: usize,
        each: &mut dyn FnMut(&Item<'_>, &mut Omissions) -> Result<()>,
    ) -> Result<()> {
        if depth > self.rules.limits.depth {
            return Err(above(format!("folders are nested deeper than {}", self.rules.limits.depth)));
        }
        self.ignored.read(dir, at);
        let most = usize::try_from(self.rules.limits.entries).unwrap_or(usize::MAX);
        let names = match fd::names(dir, most) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Err(self.too_many()),
            Err(_) => {
                self.omitted.add(at, Why::Unreadable);
                return Ok(());
            }
        };
        for name in &names {
            let path = at.join(fd::os(name));
            let Ok(stat) = fd::stat(dir, name) else {
                self.omitted.add(&path, Why::Changed);
                continue;
            };
            self.item(dir, name, &path, stat, depth, each)?;
        }
        Ok(())
    }

    fn item(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        path: &Path,
        stat: Stat,
        depth: usize,
        each: &mut dyn FnMut(&Item<'_>, &mut Omissions) -> Result<()>,
    ) -> Result<()> {
        let kind = fd::kind(&stat);
        if self.ignored.ignores_here(path, kind == FileType::Directory) {
            if name.to_bytes().starts_with(crate::ignored::UNFINISHED.as_bytes()) {
                self.unfinished.push(path.to_owned());
            }
            return Ok(());
        }
        let what = match kind {
            FileType::RegularFile => What::File,
            FileType::Directory => What::Dir,
            FileType::Symlink => match fd::read_link(dir, name) {
                Ok(target) if stays_inside(path, &target) => What::Link(target),
                Ok(_) => return self.omit(path, Why::LeadsOut),
                Err(_) => return self.omit(path, Why::Changed),
            },
            _ => return self.omit(path, Why::Special),
        };
        self.count(&stat, &what)?;
        let is_dir = matches!(what, What::Dir);
        each(&Item { dir, name, path, stat, what }, &mut self.omitted)?;
        if !is_dir {
            return Ok(());
        }
        match fd::open_dir(dir, name) {
            Ok(below) => self.folder(below.as_fd(), path, depth + 1, each),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => self.omit(path, Why::Unreadable),
            Err(_) => self.omit(path, Why::Changed),
        }
    }

    fn omit(&mut self, path: &Path, why: Why) -> Result<()> {
        self.omitted.add(path, why);
        Ok(())
    }

    fn count(&mut self, stat: &Stat, what: &What) -> Result<()> {
        self.entries += 1;
        if self.entries > self.rules.limits.entries {
            return Err(self.too_many());
        }
        if matches!(what, What::File) {
            self.bytes = self.bytes.saturating_add(u64::try_from(stat.st_size).unwrap_or(0));
        }
        if self.bytes > self.rules.limits.bytes {
            return Err(above(format!("it holds more than {} bytes", self.rules.limits.bytes)));
        }
        Ok(())
    }

    fn too_many(&self) -> Error {
        above(format!("it holds more than {} files and folders", self.rules.limits.entries))
    }
}

fn above(why: String) -> Error {
    Error::new(ErrorKind::TooLarge, format!("the folder is too large for a workspace: {why}"))
        .with_hint("name what is not needed in `.sandboxerignore`")
}
