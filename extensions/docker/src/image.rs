//! What a container is made from: an image that the engine has or can get, a root file system tar, a snapshot.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::models::ImageInspect;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures::StreamExt as _;
use sandboxer_core::extension::ProvisionRequest;
use sandboxer_core::profile::Image;
use sandboxer_core::{Error, ErrorKind, Result};
use sha2::Digest as _;
use tokio_util::io::ReaderStream;

use crate::client::Connected;
use crate::errors::{map, optional};
use crate::labels;

/// How long a registry may take.
pub(crate) const PULL_LIMIT: Duration = Duration::from_secs(300);
/// How long the import of a root file system may take.
const IMPORT_LIMIT: Duration = Duration::from_secs(300);
/// The user of images that name none, or root.
const UNPRIVILEGED: &str = "1000:1000";
const ROOTFS_REPOSITORY: &str = "sandboxer/rootfs";
pub(crate) const SNAPSHOT_REPOSITORY: &str = "sandboxer/snapshot";

/// An image that is there.
pub(crate) struct Found {
    pub(crate) id: String,
    /// As the engine takes it: `1000:1000`, or the image's own words.
    pub(crate) user: String,
}

pub(crate) async fn find(connected: &Connected, request: &ProvisionRequest) -> Result<Found> {
    if let Some(taken) = &request.from {
        let name = format!("{SNAPSHOT_REPOSITORY}:{}", taken.snapshot_id);
        return match inspect(connected, &name).await? {
            Some(image) => Ok(found(&name, image)),
            None => Err(Error::new(
                ErrorKind::SnapshotNotFound,
                format!("the image of {} is not in the docker engine", taken.snapshot_id),
            )),
        };
    }
    match &request.spec.image {
        Image::Host => Err(Error::unsupported(crate::ID, "`image: host`").with_hint(
            "name an image of the docker engine, such as `debian:stable-slim`, or a root file system tar",
        )),
        Image::Oci(name) => registry_image(connected, name, request).await,
        Image::RootfsTar(path) => rootfs(connected, path, request).await,
    }
}

async fn inspect(connected: &Connected, name: &str) -> Result<Option<ImageInspect>> {
    optional(connected.api.inspect_image(name).await, "look for an image")
}

fn found(name: &str, image: ImageInspect) -> Found {
    let config = image.config.unwrap_or_default();
    let kept = config.labels.as_ref().and_then(|labels| labels.get(labels::USER)).cloned();
    let user = kept.or(config.user).filter(|user| !is_root(user));
    Found {
        id: image.id.unwrap_or_else(|| name.to_owned()),
        user: user.unwrap_or_else(|| UNPRIVILEGED.into()),
    }
}

fn is_root(user: &str) -> bool {
    matches!(user.split(':').next().unwrap_or_default(), "" | "root" | "0")
}

async fn registry_image(connected: &Connected, name: &str, request: &ProvisionRequest) -> Result<Found> {
    if let Some(image) = inspect(connected, name).await? {
        return Ok(found(name, image));
    }
    request.progress.say(format!("pulling {name}"));
    let pulled = tokio::time::timeout(PULL_LIMIT, pull(connected, name)).await;
    let why = match pulled {
        Ok(Ok(())) => match inspect(connected, name).await? {
            Some(image) => return Ok(found(name, image)),
            None => Error::new(ErrorKind::ImageNotFound, "it is not there after the pull"),
        },
        Ok(Err(error)) if matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::NoSpace) => {
            return Err(error);
        }
        Ok(Err(error)) => error,
        Err(_) => Error::new(ErrorKind::Timeout, format!("the pull took more than {PULL_LIMIT:?}")),
    };
    Err(Error::new(ErrorKind::ImageNotFound, format!("the docker engine does not have the image `{name}`"))
        .with_source(why)
        .with_hint(format!("`docker pull {name}` on this machine, or `docker import FILE.tar {name}`")))
}

async fn pull(connected: &Connected, name: &str) -> Result<()> {
    let options = CreateImageOptionsBuilder::default().from_image(&with_tag(name)).build();
    drain(connected.api.create_image(Some(options), None, None), "pull an image").await
}

async fn drain<T>(
    stream: impl futures::Stream<Item = std::result::Result<T, bollard::errors::Error>>,
    doing: &str,
) -> Result<()> {
    let mut stream = std::pin::pin!(stream);
    while let Some(step) = stream.next().await {
        step.map_err(|error| map(error, doing))?;
    }
    Ok(())
}

/// Without a tag the engine would pull all of them.
fn with_tag(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    if last.contains(':') || last.contains('@') { name.to_owned() } else { format!("{name}:latest") }
}

/// Imports a tar once for each content.
async fn rootfs(connected: &Connected, path: &str, request: &ProvisionRequest) -> Result<Found> {
    let missing = |source: std::io::Error| {
        Error::new(ErrorKind::ImageNotFound, format!("the root file system `{path}` cannot be read"))
            .with_source(source)
            .with_hint("it is a tar file on this machine, as `docker export` writes it")
    };
    let file = std::path::absolute(Path::new(path)).map_err(missing)?;
    let hashed = file.clone();
    let hash = tokio::task::spawn_blocking(move || hash_of(&hashed)).await;
    let hash = hash
        .map_err(|source| Error::new(ErrorKind::Internal, "a hash broke off").with_source(source))?
        .map_err(missing)?;
    let name = format!("{ROOTFS_REPOSITORY}:{hash}");
    if let Some(image) = inspect(connected, &name).await? {
        return Ok(found(&name, image));
    }
    request.progress.say(format!("importing {path}"));
    match tokio::time::timeout(IMPORT_LIMIT, import(connected, file, &hash)).await {
        Ok(imported) => imported?,
        Err(_) => {
            return Err(Error::new(
                ErrorKind::Timeout,
                format!("the import of {path} took more than {IMPORT_LIMIT:?}"),
            ));
        }
    }
    match inspect(connected, &name).await? {
        Some(image) => Ok(found(&name, image)),
        None => {
            Err(Error::new(ErrorKind::BackendFailed, format!("the docker engine lost the import of {path}")))
        }
    }
}

async fn import(connected: &Connected, file: PathBuf, hash: &str) -> Result<()> {
    let file = tokio::fs::File::open(&file).await.map_err(|source| {
        Error::new(ErrorKind::ImageNotFound, "the root file system cannot be read").with_source(source)
    })?;
    let options = CreateImageOptionsBuilder::default()
        .from_src("-")
        .repo(ROOTFS_REPOSITORY)
        .tag(hash)
        .changes(vec![format!("LABEL {}={hash}", labels::ROOTFS)])
        .build();
    let body = bollard::body_try_stream(ReaderStream::with_capacity(file, 128 * 1024));
    drain(connected.api.create_image(Some(options), Some(body), None), "import a root file system").await
}

/// The content's hash, short enough for a tag.
fn hash_of(path: &Path) -> std::io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is not a file"));
    }
    let mut hasher = sha2::Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => hasher.update(&buffer[..count]),
        }
    }
    Ok(hasher.finalize().iter().take(20).map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::{is_root, with_tag};

    #[test]
    fn a_name_gets_a_tag_where_it_has_none() {
        assert_eq!(with_tag("debian"), "debian:latest");
        assert_eq!(with_tag("host:5000/debian"), "host:5000/debian:latest");
        assert_eq!(with_tag("host:5000/debian:12"), "host:5000/debian:12");
        assert_eq!(with_tag("debian@sha256:00"), "debian@sha256:00");
    }

    #[test]
    fn root_has_several_names() {
        assert!(is_root("") && is_root("0:5") && is_root("root"));
        assert!(!is_root("node") && !is_root("1000:0"));
    }
}
