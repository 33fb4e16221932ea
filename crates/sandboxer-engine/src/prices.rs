//! The price book of this process: the built-in files, then folders, read again when something in them changes.
//!
//! A server sees a new price without a restart, at most a second late. Sandboxes that run keep the tariff that they
//! have; a new price is for new intervals.

mod built_in;
mod folder;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sandboxer_core::Error;
use sandboxer_core::price::{PriceBook, PriceFile};

use crate::catalog::folder::MAX_FILES;
use folder::Folder;

/// How long a look at the folders is good for.
const FRESH: Duration = Duration::from_secs(1);

/// The prices, with the folders that they come from. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct Prices {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    folders: Vec<Folder>,
    /// After the folders.
    texts: Vec<PriceFile>,
    loaded: Mutex<Option<Loaded>>,
    /// The extensions that are no machines of one's own; nobody is known to be one until the engine says so.
    metered: OnceLock<BTreeSet<String>>,
}

#[derive(Clone)]
struct Loaded {
    book: Arc<PriceBook>,
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
        Self::load_with(folders, Vec::new())
    }

    /// As [`Prices::load`], then the folders that somebody named. Where one of those is missing, nobody knows what it
    /// would say, and no metered extension has a price.
    pub fn load_with(folders: Vec<PathBuf>, named: Vec<PathBuf>) -> Self {
        let folder = |path, must_exist| Folder { path, must_exist };
        let usual = folders.into_iter().map(|path| folder(path, false));
        let folders = usual.chain(named.into_iter().map(|path| folder(path, true))).collect();
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
        let book = self.book();
        let mut problems = book.problems();
        if let Some(metered) = self.inner.metered.get() {
            problems.extend(book.misfits(|extension| metered.contains(extension)));
        }
        problems
    }

    /// Which extensions a provider bills: a price that makes them machines of one's own is a problem.
    pub(crate) fn are_metered(&self, extensions: impl IntoIterator<Item = String>) {
        self.inner.metered.get_or_init(|| extensions.into_iter().collect());
    }

    /// Files of the user's own that price what is not registered: each with its extension.
    pub fn strangers(&self, is_registered: impl Fn(&str) -> bool) -> Vec<(String, String)> {
        let book = self.book();
        let cards = book.cards().into_iter().filter(|card| !card.file.starts_with(built_in::PREFIX));
        let strangers = cards.filter(|card| !is_registered(&card.extension));
        strangers.map(|card| (card.file.clone(), card.extension.clone())).collect()
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
        let stamps = self.inner.folders.iter().flat_map(stamps).collect();
        let loaded = match slot.take() {
            Some(loaded) if loaded.stamps == stamps => Loaded { looked, ..loaded },
            _ => {
                let loaded = self.inner.read(stamps, looked);
                tell(&loaded);
                loaded
            }
        };
        slot.insert(loaded).clone()
    }
}

impl Inner {
    fn read(&self, stamps: Vec<Stamp>, looked: Instant) -> Loaded {
        let built_in = built_in::FILES.iter().map(|(name, text)| PriceFile::new(*name, *text)).collect();
        let mut files: Vec<Vec<PriceFile>> = vec![built_in];
        files.extend(self.folders.iter().map(Folder::read));
        files.push(self.texts.clone());
        Loaded { book: Arc::new(PriceBook::of_folders(files)), stamps, looked }
    }
}

/// Once for each state of the folders, by whoever needs a price: nobody looks for a mistake that makes no noise.
fn tell(loaded: &Loaded) {
    // The built-in files come first. They are whole, and most of them are never parsed.
    for problem in loaded.book.problems_after(1) {
        tracing::error!("a price cannot be used: {}", problem.chain().join(": "));
    }
}

/// The folder's own and those of its files, in the order of their names.
fn stamps(folder: &Folder) -> Vec<Stamp> {
    let mut paths = folder.paths().unwrap_or_default();
    paths.truncate(MAX_FILES);
    paths.push(folder.path.clone());
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
