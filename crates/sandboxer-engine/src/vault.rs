//! Secrets that are needed in clear: signing keys of webhooks, keys of providers. Each is a file that only its owner reads,
//! beside the store and never in it, so that a copy of the store gives none away.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind as IoKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sandboxer_core::{Error, ErrorKind, Result};

use crate::Engine;
use crate::workspace::io_error;

/// Longer than any key, short enough to read at once.
const LONGEST_SECRET: usize = 64 * 1024;
const LONGEST_NAME: usize = 128;
/// What a file is called until it is whole. No name starts with a dot.
const UNFINISHED: &str = ".new-";

/// Tells the unfinished files of this process apart.
static TURN: AtomicU64 = AtomicU64::new(0);

/// A text that is not shown by accident: it has no `Display`, and its `Debug` says nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for whoever must sign or send it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A folder of secrets by name. Any number of processes may use it at once; a reader sees the old text or the new one.
#[derive(Clone, Debug)]
pub struct Vault {
    folder: PathBuf,
}

impl Vault {
    /// Nothing is made before the first `put`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Keeps a text under a name, in place of what was there. It is on the disk when this returns.
    pub fn put(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path(name)?;
        if text.is_empty() || text.len() > LONGEST_SECRET {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("a secret has 1 to {LONGEST_SECRET} bytes, and this one {}", text.len()),
            ));
        }
        self.make_folder()?;
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.folder.join(format!("{UNFINISHED}{}-{turn}", std::process::id()));
        let written = write_new(&unfinished, text).and_then(|()| {
            fs::rename(&unfinished, &path)?;
            File::open(&self.folder)?.sync_all()
        });
        written.map_err(|source| {
            let _ = fs::remove_file(&unfinished);
            io_error(format!("the secret `{name}` cannot be kept"), source)
        })
    }

    /// The text under a name, if there is one.
    pub fn get(&self, name: &str) -> Result<Option<Secret>> {
        let path = self.path(name)?;
        let failed = |source| io_error(format!("the secret `{name}` cannot be read"), source);
        let file = OpenOptions::new().read(true).custom_flags(no_follow()).open(&path);
        let file = match file {
            Ok(file) => file,
            Err(error) if error.kind() == IoKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut text = String::new();
        file.take(LONGEST_SECRET as u64 + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() > LONGEST_SECRET {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("the secret `{name}` is too long to be one"),
            ));
        }
        Ok(Some(Secret(text)))
    }

    /// Forgets a name. True when something was there.
    pub fn remove(&self, name: &str) -> Result<bool> {
        match fs::remove_file(self.path(name)?) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == IoKind::NotFound => Ok(false),
            Err(error) => Err(io_error(format!("the secret `{name}` cannot be removed"), error)),
        }
    }

    /// A name is a file's name and nothing else: no separators, no dot in front.
    fn path(&self, name: &str) -> Result<PathBuf> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if starts_well && name.len() <= LONGEST_NAME && name.bytes().all(legal) {
            return Ok(self.folder.join(name));
        }
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!("`{}` is not a name of a secret", sandboxer_core::suggest::printable(name)),
        )
        .with_hint(format!(
            "1 to {LONGEST_NAME} letters, digits, `.`, `_` and `-`, with a letter or digit first"
        )))
    }

    fn make_folder(&self) -> Result<()> {
        let failed = |source| io_error(format!("{} cannot be made", self.folder.display()), source);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(failed)?;
        // One that was there before may be open to others.
        let mode = fs::metadata(&self.folder).map_err(failed)?.permissions().mode();
        if mode & 0o077 != 0 {
            fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o700)).map_err(failed)?;
        }
        Ok(())
    }
}

fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).custom_flags(no_follow());
    let mut file = match options.open(path) {
        // Left by a process with our number that was killed.
        Err(error) if error.kind() == IoKind::AlreadyExists => {
            fs::remove_file(path)?;
            options.open(path)?
        }
        other => other?,
    };
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// A link in the folder of secrets is not of our making.
fn no_follow() -> i32 {
    i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0)
}

impl Engine {
    /// Gives the engine the home in whose `secrets` folder secrets are kept. Without it, there are no webhooks.
    pub fn keep_secrets_in(&self, home: impl Into<PathBuf>) {
        let _ = self.inner.vault.set(Vault::new(home.into().join("secrets")));
    }

    pub(crate) fn vault(&self) -> Result<&Vault> {
        self.inner
            .vault
            .get()
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, "this engine has no place to keep secrets in"))
    }
}

#[cfg(test)]
mod tests;
