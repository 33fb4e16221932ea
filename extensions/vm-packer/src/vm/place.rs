//! Where a machine lives on disk.
//!
//! `vms/<tag>/` is ours: the record, the keys, the console. `vms/<tag>/machine/` is what QEMU works in, as another user
//! where that is possible: the overlay disk, links to the image, the seed drive, its socket.

use std::path::{Path, PathBuf};

use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};

use crate::files::{failed, private_folder};

#[derive(Clone, Debug)]
pub(crate) struct Places {
    root: PathBuf,
}

impl Places {
    /// The root has to be a real path: processes are found by it.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(crate) fn prepare(&self) -> Result<()> {
        private_folder(&self.root)
    }

    pub(crate) fn of(&self, tag: &str) -> Result<Place> {
        check_tag(tag)?;
        Ok(Place { folder: self.root.join(tag), tag: tag.to_owned() })
    }

    /// Every machine whose tag starts so, alive or not.
    pub(crate) fn all(&self, prefix: &str) -> Result<Vec<Place>> {
        let entries = match std::fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(failed("read", &self.root, source)),
        };
        let mut tags: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|tag| tag.starts_with(prefix) && check_tag(tag).is_ok())
            .collect();
        tags.sort();
        tags.iter().map(|tag| self.of(tag)).collect()
    }
}

/// A tag names a folder, so it is nothing but a name.
pub(crate) fn check_tag(tag: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if tag.is_empty() || tag.len() > 100 || !tag.chars().all(fits) {
        return Err(Error::new(ErrorKind::InvalidInput, format!("`{}` is not a tag", printable(tag))));
    }
    Ok(())
}

/// The place of one machine.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) tag: String,
    folder: PathBuf,
}

impl Place {
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What QEMU works in, and how its processes are found.
    pub(crate) fn machine(&self) -> PathBuf {
        self.folder.join("machine")
    }

    pub(crate) fn lock_file(&self) -> PathBuf {
        self.folder.join("lock")
    }

    pub(crate) fn record_file(&self) -> PathBuf {
        self.folder.join("machine.json")
    }

    /// The private key that gets us in.
    pub(crate) fn identity(&self) -> PathBuf {
        self.folder.join("id_ed25519")
    }

    /// The private key by which we know the guest; it goes in with the seed drive.
    pub(crate) fn guest_key(&self) -> PathBuf {
        self.folder.join("ssh_host_ed25519_key")
    }

    /// The two halves of the console's log, see `console`.
    pub(crate) fn console(&self, half: u8) -> PathBuf {
        self.folder.join(format!("console.{half}"))
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.machine().join("disk.qcow2")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.machine().join("qmp.sock")
    }

    pub(crate) fn exists(&self) -> bool {
        self.folder.symlink_metadata().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_only_a_name() {
        let places = Places::new("/state/vms".into());
        assert!(places.of("sbx_01k9abc").is_ok());
        for tag in ["", ".", "..", "a/b", "../a", "a b", "a\n", "é", &"x".repeat(101)] {
            assert_eq!(places.of(tag).unwrap_err().kind(), ErrorKind::InvalidInput, "{tag:?}");
        }
    }
}
