//! The price book of this process: the built-in files, then folders, read again when something in them changes.
//!
//! A server sees a new price without a restart, at most a second late. Sandboxes that run keep the tariff that they
//! have; a new price is for new intervals.

mod built_in;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandboxer_core::price::{PriceBook, PriceFile};
use sandboxer_core::{Error, ErrorKind};

use crate::catalog::folder::{MAX_FILES, names, read_file, shown};

/// How long a look at the folders is good for.
const FRESH: Duration = Duration::from_secs(1);

/// The prices, with the folders that they come from. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct Prices {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    folders: Vec<PathBuf>,
    /// After the folders.
    texts: Vec<PriceFile>,
    loaded: Mutex<Option<Loaded>>,
}

#[derive(Clone)]
struct Loaded {
    book: Arc<PriceBook>,
    /// Of the folders; those of files are the book's.
    problems: Arc<[Error]>,
    stamps: Vec<Stamp>,
    looked: Instant,
}

/// What changes when a file is written, replaced, added or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    /// Device, inode, length and both times of the file. Absent where there is none.
    identity: Option<[i128; 5]>,
}

impl Prices {
    /// The built-in prices and those of the folders; later folders win, and one that is missing is empty.
    /// Nothing is read before somebody asks.
    pub fn load(folders: Vec<PathBuf>) -> Self {
        Self { inner: Arc::new(Inner { folders, ..Inner::default() }) }
    }

    /// The built-in prices and these texts, each with its name; the texts win.
    pub fn of_texts(files: &[(&str, &str)]) -> Self {
        let file = |(name, text): &(&str, &str)| PriceFile::new((*name).to_owned(), (*text).to_owned());
        let texts = files.iter().map(file).collect();
        Self { inner: Arc::new(Inner { texts, ..Inner::default() }) }
    }

    /// The book as of now.
    pub fn book(&self) -> Arc<PriceBook> {
        self.loaded().book
    }

    /// The files that cannot be used, and why. What they would have priced has no price.
    pub fn problems(&self) -> Vec<Error> {
        let loaded = self.loaded();
        loaded.problems.iter().cloned().chain(loaded.book.problems()).collect()
    }

    fn loaded(&self) -> Loaded {
        let mut slot = self.inner.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = slot.as_ref()
            && (self.inner.folders.is_empty() || loaded.looked.elapsed() < FRESH)
        {
            return loaded.clone();
        }
        let looked = Instant::now();
        // Before the files are read: what changes meanwhile is seen next time.
        let stamps = self.inner.folders.iter().flat_map(|folder| stamps(folder)).collect();
        let loaded = match slot.take() {
            Some(loaded) if loaded.stamps == stamps => Loaded { looked, ..loaded },
            before => {
                let loaded = self.inner.read(stamps, looked);
                if before.is_some() {
                    tell(&loaded);
                }
                loaded
            }
        };
        slot.insert(loaded).clone()
    }
}

impl Inner {
    fn read(&self, stamps: Vec<Stamp>, looked: Instant) -> Loaded {
        let mut problems = Vec::new();
        let built_in = built_in::FILES.iter().map(|(name, text)| PriceFile::new(*name, *text)).collect();
        let mut files: Vec<Vec<PriceFile>> = vec![built_in];
        files.extend(self.folders.iter().map(|folder| files_of(folder, &mut problems)));
        files.push(self.texts.clone());
        Loaded { book: Arc::new(PriceBook::of_folders(files)), problems: problems.into(), stamps, looked }
    }
}

/// Somebody changed a price while we run and may not see otherwise that it is wrong.
fn tell(loaded: &Loaded) {
    for problem in loaded.problems.iter().chain(&loaded.book.problems()) {
        tracing::error!("a price cannot be used: {}", problem.chain().join(": "));
    }
}

fn files_of(folder: &Path, problems: &mut Vec<Error>) -> Vec<PriceFile> {
    let mut paths = match names(folder) {
        Ok(paths) => paths,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            let message = format!("{}: the folder of prices cannot be read", shown(folder));
            problems.push(Error::new(ErrorKind::InvalidInput, message).with_source(error));
            return Vec::new();
        }
    };
    paths.sort();
    if paths.len() > MAX_FILES {
        let message = format!("{}: more than {MAX_FILES} price files, the rest was not read", shown(folder));
        problems.push(Error::new(ErrorKind::TooLarge, message));
        paths.truncate(MAX_FILES);
    }
    let file =
        |path: PathBuf| PriceFile { name: shown(&path).into(), text: read_file(&path).map(Into::into) };
    paths.into_iter().map(file).collect()
}

/// The folder's own and those of its files, in the order of their names.
fn stamps(folder: &Path) -> Vec<Stamp> {
    let mut paths = names(folder).unwrap_or_default();
    paths.sort();
    paths.truncate(MAX_FILES);
    paths.push(folder.to_owned());
    let stamp = |path: PathBuf| {
        let identity = fs::metadata(&path).ok().map(|found| {
            let time = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
            [
                i128::from(found.dev()),
                i128::from(found.ino()),
                i128::from(found.len()),
                time(found.mtime(), found.mtime_nsec()),
                time(found.ctime(), found.ctime_nsec()),
            ]
        });
        Stamp { path, identity }
    };
    paths.into_iter().map(stamp).collect()
}

#[cfg(test)]
mod tests;
