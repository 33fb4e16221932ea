//! Reads the profile files of one folder, within bounds.

use std::borrow::Cow;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sandboxer_core::profile::MAX_FILE_BYTES;
use sandboxer_core::{Error, ErrorKind, Result};

use super::Origin;

/// The most profile files that one folder may hold.
pub(crate) const MAX_FILES: usize = 1_000;
/// The most names that are looked at, so that a folder full of something else ends as well.
const MAX_NAMES: usize = 100_000;

/// One file and its text, or why there is none.
pub(super) struct Found {
    pub(super) origin: Origin,
    pub(super) text: Result<Cow<'static, str>>,
}

/// Whether the folder must be there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    IsFine,
    IsAProblem,
}

/// The `.yaml` and `.yml` files of `folder` in the order of their names; hidden files are left alone.
pub(super) fn read(folder: &Path, missing: Missing) -> Vec<Found> {
    let problem = |error| vec![Found { origin: Origin::File(folder.to_owned()), text: Err(error) }];
    let mut paths = match names(folder) {
        Ok(paths) => paths,
        Err(error) if error.kind() == io::ErrorKind::NotFound && missing == Missing::IsFine => {
            return Vec::new();
        }
        Err(error) => {
            let message = format!("{}: the folder cannot be read", shown(folder));
            return problem(Error::new(ErrorKind::InvalidProfile, message).with_source(error));
        }
    };
    paths.sort();
    let surplus = paths.len().saturating_sub(MAX_FILES);
    paths.truncate(MAX_FILES);
    let mut found: Vec<Found> = paths
        .into_iter()
        .map(|path| Found { text: read_file(&path).map(Cow::Owned), origin: Origin::File(path) })
        .collect();
    if surplus > 0 {
        let message =
            format!("{}: more than {MAX_FILES} profile files, {surplus} were not read", shown(folder));
        found.extend(problem(Error::new(ErrorKind::TooLarge, message)));
    }
    found
}

/// The paths of the `.yaml` and `.yml` files of `folder`, in no order; hidden files are left alone.
pub(crate) fn names(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)?.take(MAX_NAMES) {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !name.starts_with('.') && (name.ends_with(".yaml") || name.ends_with(".yml")) {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// A path for people: a name from somebody else's folder must not reach a terminal as it is.
pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string().replace(char::is_control, "\u{fffd}")
}

/// The text of one regular file, or of the regular file that a link leads to.
pub(crate) fn read_file(path: &Path) -> Result<String> {
    let refuse = |why: &str| Error::new(ErrorKind::InvalidProfile, format!("{}: {why}", shown(path)));
    let broken = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::new(ErrorKind::NotFound, format!("{}: there is no such file", shown(path)))
        }
        _ => refuse("the file cannot be read").with_source(error),
    };
    // Before opening: to open a pipe would wait for whoever writes to it.
    if !fs::metadata(path).map_err(broken)?.is_file() {
        return Err(refuse("not a regular file"));
    }
    let mut bytes = Vec::new();
    let most = MAX_FILE_BYTES as u64 + 1;
    fs::File::open(path).map_err(broken)?.take(most).read_to_end(&mut bytes).map_err(broken)?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(refuse(&format!("the file is larger than {} KiB", MAX_FILE_BYTES / 1024)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        let start = valid.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let column = String::from_utf8_lossy(&valid[start..]).chars().count() + 1;
        Error::new(ErrorKind::InvalidProfile, format!("{}:{line}:{column}: not UTF-8 text", shown(path)))
    })
}
