//! The manifest of a folder here. Files that did not change since the last time are not read again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;
use sandboxer_core::Result;
use serde::{Deserialize, Serialize};

use crate::fd;
use crate::ignored::IgnoreSet;
use crate::manifest::{Entry, Kind, Manifest, hash, is_portable};
use crate::rules::Rules;
use crate::walk::{Item, Omissions, Walk, What, Why};

/// How long before a scan a file must have changed for its stamp to be believed: two changes within one tick of the
/// file system's clock look the same.
const SETTLED_NS: i128 = 50_000_000;
/// The same for file systems whose clock counts whole seconds.
const SETTLED_COARSE_NS: i128 = 2_000_000_000;

/// What makes a change visible without reading: a content cannot change and leave all of it as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    pub size: u64,
    pub inode: u64,
    pub modified_ns: i128,
    pub changed_ns: i128,
}

impl Stamp {
    pub(crate) fn of(stat: &Stat) -> Self {
        let ns = |seconds: i64, nanos: u64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Self {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            inode: stat.st_ino,
            modified_ns: ns(stat.st_mtime, stat.st_mtime_nsec),
            changed_ns: ns(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    fn is_settled(&self, at_ns: i128) -> bool {
        let coarse = self.changed_ns % 1_000_000_000 == 0;
        self.changed_ns + if coarse { SETTLED_COARSE_NS } else { SETTLED_NS } < at_ns
    }
}

/// Hashes of an earlier scan, by path and stamp.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Cache {
    taken_ns: i128,
    files: BTreeMap<String, (Stamp, String)>,
}

/// What a folder holds now.
#[derive(Debug)]
pub struct Scan {
    pub manifest: Manifest,
    pub cache: Cache,
    pub ignored: IgnoreSet,
    pub omitted: Omissions,
    /// How many files had to be read.
    pub read: u64,
    pub(crate) unfinished: Vec<PathBuf>,
}

impl Scan {
    /// What the file looked like when it was scanned.
    pub fn stamp(&self, path: &str) -> Option<&Stamp> {
        self.cache.files.get(path).map(|(stamp, _)| stamp)
    }
}

/// Scans a folder, with the hashes of an earlier scan where they still hold.
pub fn scan(folder: &Path, rules: &Rules, earlier: &Cache) -> Result<Scan> {
    let mut cache = Cache { taken_ns: now_ns(), files: BTreeMap::new() };
    let (mut manifest, mut read) = (Manifest::default(), 0);
    let mut walk = Walk::new(rules);
    walk.run(folder, &mut |item, omitted| {
        let Some(path) = item.path.to_str().filter(|path| is_portable(path)) else {
            omitted.add(item.path, Why::Name);
            return Ok(());
        };
        let entry = match &item.what {
            What::Dir => Some(Entry { mtime: item.stat.st_mtime, ..Entry::dir() }),
            What::Link(target) => {
                match target.to_str().filter(|target| !target.chars().any(char::is_control)) {
                    Some(target) => Some(Entry { mtime: item.stat.st_mtime, ..Entry::link(target) }),
                    None => {
                        omitted.add(item.path, Why::Name);
                        None
                    }
                }
            }
            What::File => file(item, path, earlier, &mut cache, omitted, &mut read),
        };
        if let Some(entry) = entry {
            manifest.0.insert(path.to_owned(), entry);
        }
        Ok(())
    })?;
    let Walk { ignored, omitted, unfinished, .. } = walk;
    Ok(Scan { manifest, cache, ignored, omitted, read, unfinished })
}

fn file(
    item: &Item<'_>,
    path: &str,
    earlier: &Cache,
    cache: &mut Cache,
    omitted: &mut Omissions,
    read: &mut u64,
) -> Option<Entry> {
    let known = earlier
        .files
        .get(path)
        .filter(|(stamp, _)| *stamp == Stamp::of(&item.stat) && stamp.is_settled(earlier.taken_ns));
    let (stamp, content, stat) = match known {
        Some((stamp, content)) => (*stamp, content.clone(), item.stat),
        None => {
            *read += 1;
            let opened = fd::open_file(item.dir, item.name);
            let hashed = opened.and_then(|(file, stat)| Ok((Stamp::of(&stat), hash(file)?, stat)));
            match hashed {
                Ok(hashed) => hashed,
                Err(error) => {
                    let denied = error.kind() == std::io::ErrorKind::PermissionDenied;
                    omitted.add(item.path, if denied { Why::Unreadable } else { Why::Changed });
                    return None;
                }
            }
        }
    };
    let entry = Entry {
        kind: Kind::File,
        exec: stat.st_mode & 0o100 != 0,
        size: stamp.size,
        mtime: stat.st_mtime,
        content: content.clone(),
    };
    cache.files.insert(path.to_owned(), (stamp, content));
    Some(entry)
}

fn now_ns() -> i128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i128::try_from(since.as_nanos()).unwrap_or(i128::MAX)
}
