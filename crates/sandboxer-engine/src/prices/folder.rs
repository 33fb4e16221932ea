//! Reads the price files of one folder, within bounds and without ever waiting for one. What cannot be read is not left
//! out: it comes back as a file without a text, so that nothing keeps an older price because of it.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use sandboxer_core::price::PriceFile;
use sandboxer_core::profile::MAX_FILE_BYTES;
use sandboxer_core::{Error, ErrorKind, Result};

use crate::catalog::folder::{MAX_FILES, shown};

/// The most names that are looked at, so that a folder full of something else ends as well.
const MAX_NAMES: usize = 100_000;

/// A folder of price files.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// Somebody named it. Without it, nobody knows what it would say.
    pub(super) must_exist: bool,
}

impl Folder {
    /// The price files in the order of their names; hidden files are left alone.
    pub(super) fn read(&self) -> Vec<PriceFile> {
        let mut paths = match self.paths() {
            Ok(paths) => paths,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.must_exist => return Vec::new(),
            Err(error) => {
                let error = refuse(&self.path, "the folder of prices cannot be read").with_source(error);
                return vec![PriceFile::unread(
                    error.with_hint("correct SANDBOXER_PRICES or `prices` in config.toml"),
                )];
            }
        };
        let surplus = paths.len() > MAX_FILES;
        paths.truncate(MAX_FILES);
        let mut files: Vec<PriceFile> = paths.iter().filter_map(|path| file(path)).collect();
        if surplus {
            let why = format!("more than {MAX_FILES} price files, the rest was not read");
            files.push(PriceFile::unread(refuse(&self.path, &why)));
        }
        files
    }

    /// In the order of their names.
    pub(super) fn paths(&self) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for (index, entry) in fs::read_dir(&self.path)?.enumerate() {
            let path = entry?.path();
            if index >= MAX_NAMES {
                return Err(io::Error::other(format!("it has more than {MAX_NAMES} names")));
            }
            if is_price(&path) {
                paths.push(path);
            }
        }
        paths.sort();
        Ok(paths)
    }
}

/// `.yaml` and `.yml`, in letters of any size: one that is overlooked would leave an older price in force.
fn is_price(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    !name.starts_with('.') && (name.ends_with(".yaml") || name.ends_with(".yml"))
}

/// Nothing for a file that was removed since its name was read.
fn file(path: &Path) -> Option<PriceFile> {
    let text = read_file(path);
    let is_gone = || fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    if text.is_err() && is_gone() {
        return None;
    }
    Some(PriceFile { name: shown(path).into(), text: text.map(Into::into) })
}

fn refuse(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("{}: {why}", shown(path))).with_context("file", shown(path))
}

/// The text of one regular file, or of the regular file that a link leads to.
fn read_file(path: &Path) -> Result<String> {
    let broken = |error: io::Error| refuse(path, "the file cannot be read").with_source(error);
    let irregular = || refuse(path, "not a regular file").with_hint("move it out of the folder of prices");
    // Before opening, which alone may set a device in motion.
    if !fs::metadata(path).map_err(broken)?.is_file() {
        return Err(irregular());
    }
    // And a pipe that took the file's place meanwhile must not make us wait for whoever writes to it.
    let flags =
        i32::try_from((rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY).bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(broken)?;
    if !file.metadata().map_err(broken)?.is_file() {
        return Err(irregular());
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(broken)?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(refuse(path, &format!("the file is larger than {} KiB", MAX_FILE_BYTES / 1_024)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        refuse(path, &format!("line {line} is not UTF-8 text"))
    })
}
