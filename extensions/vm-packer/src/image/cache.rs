//! The folder of images: each complete or not there.
//!
//! `<hash>/` is an image, `<hash>.build/` one that is being made by whoever holds `<hash>.lock`, `<hash>.log` what Packer
//! said when it failed last.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandboxer_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::Lock;
use crate::files::{failed, private_folder, remove_tree, replace};
use crate::tools::{Tools, call};
use crate::vm::process;

/// The description of a complete image, written last.
const MANIFEST: &str = "image.json";
/// A kernel's command line has no more.
const MAX_CMDLINE: usize = 2_048;

/// One bootable image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Image {
    pub(crate) hash: String,
    /// Where its files are.
    #[serde(skip)]
    pub(crate) folder: PathBuf,
    pub(crate) disk: String,
    /// `qcow2` or `raw`.
    pub(crate) format: String,
    pub(crate) disk_bytes: u64,
    /// With a kernel of its own the machine boots it directly, otherwise from the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kernel: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) initrd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cmdline: Option<String>,
}

impl Image {
    pub(crate) fn disk_path(&self) -> PathBuf {
        self.folder.join(&self.disk)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Cache {
    root: PathBuf,
}

impl Cache {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(crate) fn prepare(&self) -> Result<()> {
        private_folder(&self.root)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn lock_file(&self, hash: &str) -> PathBuf {
        self.root.join(format!("{hash}.lock"))
    }

    pub(crate) fn build_folder(&self, hash: &str) -> PathBuf {
        self.root.join(format!("{hash}.build"))
    }

    pub(crate) fn log_file(&self, hash: &str) -> PathBuf {
        self.root.join(format!("{hash}.log"))
    }

    /// The image, if it is there.
    pub(crate) fn get(&self, hash: &str) -> Result<Option<Image>> {
        let folder = self.root.join(hash);
        let manifest = folder.join(MANIFEST);
        let text = match std::fs::read(&manifest) {
            Ok(text) => text,
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(failed("read", &manifest, source)),
        };
        let image: Image = serde_json::from_slice(&text).map_err(|source| {
            Error::new(ErrorKind::BackendFailed, format!("{} is damaged", manifest.display()))
                .with_source(source)
                .with_hint(format!("remove {}; the next create builds it again", folder.display()))
        })?;
        Ok(Some(Image { folder, ..image }))
    }

    /// Every complete image.
    pub(crate) fn all(&self) -> Vec<Image> {
        let Ok(entries) = std::fs::read_dir(&self.root) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| !name.contains('.')).filter_map(|name| self.get(&name).ok()?).collect()
    }

    /// Removes what builds left whose process is gone.
    pub(crate) fn sweep(&self) {
        let Ok(entries) = std::fs::read_dir(&self.root) else { return };
        for name in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
            let Some(hash) = name.strip_suffix(".build") else { continue };
            if let Ok(Some(_lock)) = Lock::try_take(&self.lock_file(hash))
                && let Err(error) = self.discard(hash)
            {
                tracing::warn!("a half-built image stays: {error:?}");
            }
        }
    }

    /// Ends what still works on a build and removes it. Only for the holder of the lock.
    pub(crate) fn discard(&self, hash: &str) -> Result<()> {
        let folder = self.build_folder(hash);
        process::end_all(&folder, Duration::from_secs(5));
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            super::build::remove_temporary(&entry.path());
        }
        remove_tree(&folder).map(drop)
    }

    /// Looks at what a build left in its output, describes it and makes it the image. Only for the holder of the lock.
    pub(crate) async fn publish(&self, hash: &str, output: &Path, tools: &Tools) -> Result<Image> {
        let mut image = inspect(hash, output, tools).await?;
        for name in [Some(&image.disk), image.kernel.as_ref(), image.initrd.as_ref()].into_iter().flatten() {
            let path = output.join(name);
            // Machines read it through links of their own, as another user; nobody writes to it.
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444))
                .map_err(|source| failed("made read-only", &path, source))?;
        }
        let text = serde_json::to_vec_pretty(&image).map_err(|source| {
            Error::new(ErrorKind::Internal, "an image cannot be described").with_source(source)
        })?;
        replace(&output.join(MANIFEST), &text)?;
        let folder = self.root.join(hash);
        remove_tree(&folder)?;
        std::fs::rename(output, &folder).map_err(|source| failed("published", &folder, source))?;
        image.folder = folder;
        Ok(image)
    }
}

fn unusable(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::BuildFailed, why.into()).with_hint(
        "a template leaves in `output/`: disk.qcow2 or disk.raw, and vmlinuz, initrd and cmdline if the machine boots a kernel \
         directly",
    )
}

/// What the output of a build contains.
async fn inspect(hash: &str, output: &Path, tools: &Tools) -> Result<Image> {
    let mut names: Vec<String> = std::fs::read_dir(output)
        .map_err(|_| unusable("the build left no folder `output`"))?
        .filter_map(|entry| entry.ok().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    let has = |name: &str| names.iter().any(|known| known == name).then(|| name.to_owned());
    let disk = match has("disk.qcow2").or_else(|| has("disk.raw")) {
        Some(disk) => disk,
        None => only_disk(&names)?,
    };
    let (format, disk_bytes) = inspect_disk(&output.join(&disk), tools).await?;
    let cmdline = match has("cmdline") {
        Some(name) => Some(read_cmdline(&output.join(name))?),
        None => None,
    };
    Ok(Image {
        hash: hash.to_owned(),
        folder: output.to_owned(),
        disk,
        format,
        disk_bytes,
        kernel: has("vmlinuz"),
        initrd: has("initrd"),
        cmdline,
    })
}

/// Packer's own builders name disks as they like.
fn only_disk(names: &[String]) -> Result<String> {
    let others = ["vmlinuz", "initrd", "cmdline"];
    let mut disks = names.iter().filter(|name| !others.contains(&name.as_str()));
    match (disks.next(), disks.next()) {
        (Some(disk), None) => Ok(disk.clone()),
        (None, _) => Err(unusable("the build left no disk in `output`")),
        (Some(_), Some(_)) => {
            Err(unusable(format!("`output` has several files, so which is the disk? {}", names.join(", "))))
        }
    }
}

fn read_cmdline(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).map_err(|source| failed("read", path, source))?;
    let line = text.trim();
    if line.len() > MAX_CMDLINE || line.contains(['\n', '\0']) {
        return Err(unusable("`cmdline` is not one line of a kernel's options"));
    }
    Ok(line.to_owned())
}

/// The format and size of a disk that stands by itself.
async fn inspect_disk(disk: &Path, tools: &Tools) -> Result<(String, u64)> {
    let mut command = Command::new(tools.qemu_img.path()?);
    command.args(["info", "--output=json"]);
    match disk.extension().and_then(|ending| ending.to_str()) {
        Some("qcow2") => _ = command.args(["-f", "qcow2"]),
        Some("raw") => _ = command.args(["-f", "raw"]),
        _ => {}
    }
    let said = call(command.arg(disk))
        .await
        .map_err(|error| unusable("the disk cannot be read").with_source(error))?;
    let info: serde_json::Value = serde_json::from_slice(&said)
        .map_err(|source| unusable("qemu-img does not describe the disk").with_source(source))?;
    let format = info["format"].as_str().unwrap_or_default().to_owned();
    if format != "qcow2" && format != "raw" {
        return Err(unusable(format!("the disk has the format `{format}`, not qcow2 or raw")));
    }
    // A disk that reads other files would show them to whoever is in the machine.
    if info.get("backing-filename").is_some() || info["format-specific"]["data"].get("data-file").is_some() {
        return Err(Error::new(ErrorKind::Refused, "the disk is only a layer on another file")
            .with_hint("let the template end with `qemu-img convert`, so that the disk stands by itself"));
    }
    let size = info["virtual-size"].as_u64().unwrap_or_default();
    if size == 0 {
        return Err(unusable("the disk is empty"));
    }
    Ok((format, size))
}
