//! The provider's side: a folder with one file for each sandbox, because processes come and go.
//!
//! A file comes to be whole and once (a link of what was written elsewhere) and is replaced whole (a rename). Whoever
//! changes one holds the lock; whoever reads needs nothing.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind as Io, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};

use crate::record::Record;
use crate::usage;

const LIVING: &str = "sandboxes";
const ENDED: &str = "ended";
const CREATES: &str = "creates";
/// How often a lock that somebody holds is tried again. It is held for a few file operations.
const LOCK_PAUSE: Duration = Duration::from_millis(1);

#[derive(Clone)]
pub(crate) struct Provider {
    folder: PathBuf,
}

/// Held while the folder is changed; gone with the process at the latest.
pub(crate) struct Held(#[expect(dead_code, reason = "the lock is let go when it is dropped")] File);

fn failed(what: &str, source: std::io::Error) -> Error {
    let kind = match source.kind() {
        Io::StorageFull | Io::QuotaExceeded => ErrorKind::NoSpace,
        _ => ErrorKind::BackendFailed,
    };
    Error::new(kind, format!("the pretended provider cannot {what}")).with_source(source)
}

/// A tag is a file's name here.
fn checked(tag: &str) -> Result<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if tag.is_empty() || tag.len() > 128 || !tag.chars().all(plain) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("`{}` is not a tag that the provider takes", printable(tag)),
        ));
    }
    Ok(tag)
}

impl Provider {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn file(&self, below: &str, tag: &str) -> Result<PathBuf> {
        Ok(self.folder.join(below).join(format!("{}.json", checked(tag)?)))
    }

    /// What it knows of a sandbox that has not been ended.
    pub(crate) fn get(&self, tag: &str) -> Result<Option<Record>> {
        read(&self.file(LIVING, tag)?)
    }

    /// What it remembers of one that has.
    pub(crate) fn ended(&self, tag: &str) -> Result<Option<Record>> {
        read(&self.file(ENDED, tag)?)
    }

    /// Everything that has not been ended and whose tag starts so.
    pub(crate) fn all(&self, prefix: &str) -> Result<Vec<Record>> {
        let entries = match std::fs::read_dir(self.folder.join(LIVING)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == Io::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed("list its sandboxes", error)),
        };
        let mut out = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| failed("list its sandboxes", error))?;
            let name = entry.file_name();
            let tag = name.to_str().and_then(|name| name.strip_suffix(".json"));
            let Some(tag) = tag.filter(|tag| tag.starts_with(prefix) && checked(tag).is_ok()) else {
                continue;
            };
            // It may have been ended since.
            out.extend(self.get(tag)?);
        }
        out.sort_by(|one: &Record, other| one.tag.cmp(&other.tag));
        Ok(out)
    }

    /// Waits for the lock without holding up anything else.
    pub(crate) async fn lock(&self) -> Result<Held> {
        self.prepare()?;
        let path = self.folder.join("lock");
        let file = private().open(path).map_err(|error| failed("open its lock", error))?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Held(file)),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_PAUSE).await,
                Err(TryLockError::Error(error)) => return Err(failed("take its lock", error)),
            }
        }
    }

    /// Writes a new sandbox down, unless the tag is there: then what is there is the answer, and `false`.
    pub(crate) fn insert(&self, record: Record) -> Result<(Record, bool)> {
        let path = self.file(LIVING, &record.tag)?;
        let linked = match self.link(&record, &path) {
            // The first one of all.
            Err(error) if error.kind() == Io::NotFound => {
                self.prepare()?;
                self.link(&record, &path)
            }
            other => other,
        };
        match linked {
            Ok(()) => Ok((record, true)),
            Err(error) if error.kind() == Io::AlreadyExists => match read(&path)? {
                Some(there) => Ok((there, false)),
                None => Err(Error::new(ErrorKind::Conflict, "the sandbox was ended while it was made")),
            },
            Err(error) => Err(failed("write a sandbox down", error)),
        }
    }

    fn link(&self, record: &Record, path: &Path) -> std::io::Result<()> {
        let aside = self.write_aside(record)?;
        let linked = std::fs::hard_link(&aside, path);
        let _ = std::fs::remove_file(&aside);
        linked
    }

    /// Changes what is known of a sandbox, if anything is.
    pub(crate) fn change(&self, _held: &Held, tag: &str, how: impl FnOnce(&mut Record)) -> Result<()> {
        let Some(mut record) = self.get(tag)? else { return Ok(()) };
        how(&mut record);
        self.replace(&record)
    }

    /// Ends a sandbox and bills it, once, however often it is asked and wherever it broke off before.
    pub(crate) fn end(&self, _held: &Held, tag: &str, asked_at: Timestamp) -> Result<Option<Record>> {
        let Some(mut record) = self.get(tag)? else { return Ok(None) };
        let again = record.ended_at.is_some();
        if !again {
            record.finish(asked_at)?;
            self.replace(&record)?;
        }
        let aside = usage::append(&self.folder, &record, asked_at, again)
            .map_err(|error| failed("bill a sandbox", error))?;
        if aside {
            self.forget_ended();
        }
        std::fs::rename(self.file(LIVING, tag)?, self.file(ENDED, tag)?)
            .map_err(|error| failed("end a sandbox", error))?;
        Ok(Some(record))
    }

    /// Takes back a sandbox that never came to be; nothing is billed.
    pub(crate) fn take_back(&self, tag: &str) -> Result<()> {
        match std::fs::remove_file(self.file(LIVING, tag)?) {
            Err(error) if error.kind() != Io::NotFound => Err(failed("take a sandbox back", error)),
            _ => Ok(()),
        }
    }

    /// How many creates came before this one, which is counted.
    pub(crate) fn count_create(&self, _held: &Held) -> Result<u64> {
        let path = self.folder.join(CREATES);
        let before = match std::fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().unwrap_or_default(),
            Err(error) if error.kind() == Io::NotFound => 0_u64,
            Err(error) => return Err(failed("count its creates", error)),
        };
        let after = before.saturating_add(1).to_string();
        let written = self.aside(after.as_bytes()).and_then(|aside| std::fs::rename(aside, path));
        written.map_err(|error| failed("count its creates", error))?;
        Ok(before)
    }

    fn prepare(&self) -> Result<()> {
        for folder in [&self.folder, &self.folder.join(LIVING), &self.folder.join(ENDED)] {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(|error| failed("make its folder", error))?;
        }
        Ok(())
    }

    fn replace(&self, record: &Record) -> Result<()> {
        let path = self.file(LIVING, &record.tag)?;
        let written = self.write_aside(record).and_then(|aside| std::fs::rename(aside, path));
        written.map_err(|error| failed("change a sandbox", error))
    }

    fn write_aside(&self, record: &Record) -> std::io::Result<PathBuf> {
        self.aside(&serde_json::to_vec_pretty(record).map_err(std::io::Error::other)?)
    }

    /// A file under a name that nobody else has. One that a killed process of this number left is removed, not written
    /// to: it may be another name of a sandbox's file.
    fn aside(&self, bytes: &[u8]) -> std::io::Result<PathBuf> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!(".new-{}-{number}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        private().create_new(true).open(&path)?.write_all(bytes)?;
        Ok(path)
    }

    /// The export that told of them has been put aside.
    fn forget_ended(&self) {
        let entries = std::fs::read_dir(self.folder.join(ENDED)).into_iter().flatten().flatten();
        for entry in entries {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// For its owner alone.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).write(true).mode(0o600);
    options
}

fn read(path: &Path) -> Result<Option<Record>> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == Io::NotFound => return Ok(None),
        Err(error) => return Err(failed("read what it knows", error)),
    };
    serde_json::from_slice(&text).map(Some).map_err(|source| {
        Error::new(ErrorKind::BackendFailed, format!("{} is damaged", path.display()))
            .with_source(source)
            .with_hint("remove the file: the provider then knows nothing of that sandbox")
    })
}
