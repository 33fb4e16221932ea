//! The bundle: what goes to the host, as one plain tar and an index of it.
//!
//! Everything is judged on the index and read from the tar, never from the folder that it came from: what was judged is
//! what is transferred.

mod git;
mod index;
mod source;

use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use sandboxer_core::{Error, ErrorKind, Result};
use tempfile::TempDir;

pub(crate) use index::{Index, Kind, Located};
pub(crate) use source::{COMPOSE_NAMES, Origin, lay_over, prepare};

/// The file of the bundle in its temporary folder.
const TAR: &str = "bundle.tar";

pub(crate) struct Bundle {
    /// Removed with the bundle.
    folder: TempDir,
    pub(crate) index: Index,
    /// Paths that look like credentials and stayed behind.
    pub(crate) left_out: Vec<String>,
    pub(crate) bytes: u64,
}

impl Bundle {
    /// Takes over a folder that holds the tar.
    fn open(folder: TempDir, left_out: Vec<String>) -> Result<Self> {
        let path = folder.path().join(TAR);
        let file = File::open(&path).map_err(|source| unreadable("the bundle cannot be read", source))?;
        let bytes = file.metadata().map_err(|source| unreadable("the bundle cannot be read", source))?.len();
        let index = Index::read(BufReader::with_capacity(256 << 10, file))?;
        Ok(Self { folder, index, left_out, bytes })
    }

    /// The file that is transferred.
    pub(crate) fn tar(&self) -> std::path::PathBuf {
        self.folder.path().join(TAR)
    }

    /// The text of a file in the bundle. `path` was resolved by the index.
    pub(crate) fn text(&self, path: &str, most: u64) -> Result<String> {
        let Some(Kind::File { offset, size }) = self.index.kind(path) else {
            return Err(Error::new(ErrorKind::InvalidInput, format!("`{path}` is no file of the bundle")));
        };
        if *size > most {
            return Err(Error::new(ErrorKind::TooLarge, format!("`{path}` is larger than {most} bytes")));
        }
        let mut file =
            File::open(self.tar()).map_err(|source| unreadable("the bundle cannot be read", source))?;
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(*offset))
            .and_then(|_| file.take(*size).read_to_end(&mut bytes))
            .map_err(|source| unreadable("the bundle cannot be read", source))?;
        String::from_utf8(bytes)
            .map_err(|_| Error::new(ErrorKind::InvalidInput, format!("`{path}` is not text in UTF-8")))
    }
}

fn unreadable(what: impl Into<String>, source: std::io::Error) -> Error {
    let kind = match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::InvalidInput,
    };
    Error::new(kind, what).with_source(source)
}

/// A folder of our own for what is packed, beside the rest of our state.
fn work_folder(state_dir: &Path) -> Result<TempDir> {
    std::fs::create_dir_all(state_dir)
        .and_then(|()| tempfile::Builder::new().prefix("bundle-").tempdir_in(state_dir))
        .map_err(|source| {
            Error::new(ErrorKind::NoSpace, format!("{} cannot be written to", state_dir.display()))
                .with_source(source)
        })
}
