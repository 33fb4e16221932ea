//! Checkpoints of a machine's disk: `snapshots/<id>/`, complete once its description is there.

use std::path::{Path, PathBuf};

use sandboxer_core::snapshot::Taken;
use sandboxer_core::{Error, ErrorKind, Result, SnapshotId};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::boot::{BASE, link};
use super::place::check_tag;
use super::{Place, Record};
use crate::files::{failed, private_folder, remove_tree, replace};
use crate::image::Image;
use crate::tools::call;

const MANIFEST: &str = "snapshot.json";
/// Each snapshot of a restored machine is one more layer to read through.
const MAX_LAYERS: usize = 32;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) image: Image,
    /// The disks, lowest first, as they are called here and in every machine that starts from them.
    pub(crate) layers: Vec<String>,
    pub(crate) disk_bytes: u64,
    pub(crate) ssh_user: String,
    pub(crate) size_bytes: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Snapshots {
    root: PathBuf,
}

impl Snapshots {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    fn folder(&self, id: &str) -> Result<PathBuf> {
        check_tag(id)?;
        Ok(self.root.join(id))
    }

    /// What was taken, if it is complete; its image's files are those in the snapshot.
    pub(crate) fn get(&self, id: &str) -> Result<Option<(Manifest, PathBuf)>> {
        let folder = self.folder(id)?;
        let path = folder.join(MANIFEST);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(failed("read", &path, source)),
        };
        let mut manifest: Manifest = serde_json::from_slice(&text).map_err(|source| {
            Error::new(ErrorKind::BackendFailed, format!("{} is damaged", path.display())).with_source(source)
        })?;
        manifest.image.folder = folder.clone();
        manifest.image.disk = BASE.to_owned();
        Ok(Some((manifest, folder)))
    }

    /// Every id that starts so, and whether it is complete.
    pub(crate) fn all(&self, prefix: &str) -> Vec<(String, bool)> {
        let Ok(entries) = std::fs::read_dir(&self.root) else { return Vec::new() };
        let mut ids: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|id| id.starts_with(prefix) && check_tag(id).is_ok())
            .collect();
        ids.sort();
        ids.into_iter().map(|id| (id.clone(), matches!(self.get(&id), Ok(Some(_))))).collect()
    }

    pub(crate) fn path(&self, id: &str) -> PathBuf {
        self.root.join(id)
    }

    /// Copies the disk of a machine that stands still.
    pub(crate) async fn take(&self, id: SnapshotId, record: &Record, place: &Place) -> Result<Taken> {
        let name = id.to_string();
        if record.layers.len() >= MAX_LAYERS {
            return Err(Error::new(
                ErrorKind::Refused,
                format!("the machine stands on {MAX_LAYERS} snapshots already"),
            )
            .with_hint("start from the image again"));
        }
        private_folder(&self.root)?;
        let folder = self.folder(&name)?;
        // What is there without a description is half of an earlier attempt.
        remove_tree(&folder)?;
        private_folder(&folder)?;
        let machine = place.machine();
        let image = &record.image;
        let shared = record.layers.iter().chain(image.kernel.iter()).chain(image.initrd.iter());
        for file in shared {
            link(&machine.join(file), &folder.join(file))?;
        }
        let top = format!("layer-{}", record.layers.len());
        let copy = folder.join(&top);
        let mut command = Command::new("cp");
        call(command.args(["--reflink=auto", "--sparse=always", "--"]).arg(place.disk()).arg(&copy)).await?;
        seal(&copy)?;
        let size_bytes = allocated(&copy);
        let manifest = Manifest {
            image: image.clone(),
            layers: record.layers.iter().cloned().chain([top]).collect(),
            disk_bytes: record.size.disk_bytes,
            ssh_user: record.ssh_user.clone(),
            size_bytes,
        };
        let text = serde_json::to_vec(&manifest).map_err(|source| {
            Error::new(ErrorKind::Internal, "a snapshot cannot be described").with_source(source)
        })?;
        replace(&folder.join(MANIFEST), &text)?;
        Ok(taken(id, &manifest))
    }

    /// `true` when there was something.
    pub(crate) fn delete(&self, id: &str) -> Result<bool> {
        remove_tree(&self.folder(id)?)
    }
}

pub(crate) fn taken(id: SnapshotId, manifest: &Manifest) -> Taken {
    Taken { snapshot_id: id, size_bytes: Some(manifest.size_bytes), data: serde_json::Value::Null }
}

/// Ours again, and read-only for every machine that starts from it.
fn seal(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    std::os::unix::fs::chown(path, Some(user), Some(group))
        .and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o444)))
        .map_err(|source| failed("sealed", path, source))
}

fn allocated(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    path.metadata().map_or(0, |data| data.blocks() * 512)
}
