//! Small steps on disk, each with its error in words.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use sandboxer_core::{Error, ErrorKind, Result};

/// Says what could not be done with which file; a full disk keeps its kind.
pub(crate) fn failed(what: &str, path: &Path, source: io::Error) -> Error {
    let kind = match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::BackendFailed,
    };
    Error::new(kind, format!("{} cannot be {what}", path.display())).with_source(source)
}

/// A folder for its owner alone, with its parents.
pub(crate) fn private_folder(path: &Path) -> Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| failed("made", path, source))
}

/// Writes a new file for its owner alone.
pub(crate) fn private_file(path: &Path, data: &[u8]) -> Result<()> {
    use io::Write as _;
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(data))
        .map_err(|source| failed("written", path, source))
}

/// Replaces a file at once or not at all.
pub(crate) fn replace(path: &Path, data: &[u8]) -> Result<()> {
    let draft = path.with_extension("draft");
    let _ = std::fs::remove_file(&draft);
    private_file(&draft, data)?;
    std::fs::rename(&draft, path).map_err(|source| failed("written", path, source))
}

/// Removes a folder and everything in it; `false` when it was not there. Somebody may be adding to it meanwhile.
pub(crate) fn remove_tree(path: &Path) -> Result<bool> {
    let mut removed = false;
    for _ in 0..20 {
        match std::fs::remove_dir_all(path) {
            Ok(()) => removed = true,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(removed),
            Err(source) if source.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(source) => return Err(failed("removed", path, source)),
        }
        if !path.exists() {
            return Ok(true);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Err(Error::new(
        ErrorKind::BackendFailed,
        format!("{} cannot be removed: something fills it", path.display()),
    ))
}

/// Runs blocking work off the executor.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|source| Error::new(ErrorKind::Internal, "a step broke off").with_source(source))?
}
