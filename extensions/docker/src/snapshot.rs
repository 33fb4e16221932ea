//! Checkpoints. One is an image: the sandbox's own, with a layer that holds the workspace.
//!
//! A commit does not see volumes, and the root of a sandbox is read-only, so what there is to keep is the workspace. It
//! is copied into the layer of a helper that is never started, and that is committed. A sandbox made from the image gets
//! the content back, because the engine fills a new volume with what the image has in its place.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bollard::models::ContainerConfig;
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, CreateContainerOptionsBuilder, DownloadFromContainerOptionsBuilder,
    UploadToContainerOptionsBuilder,
};
use futures::StreamExt as _;
use sandboxer_core::snapshot::Taken;
use sandboxer_core::{Error, ErrorKind, Result, SnapshotId};

use crate::errors::{gone, map, optional};
use crate::exec::{Place, WORKSPACE};
use crate::image::SNAPSHOT_REPOSITORY;
use crate::locks::{self, Held};
use crate::provision::{inspect, is_running, remove};
use crate::{create, labels, pause};

pub(crate) async fn take(place: &Place, id: SnapshotId) -> Result<Taken> {
    let tag = id.to_string();
    let held = locks::hold(&tag).await;
    let name = format!("{SNAPSHOT_REPOSITORY}:{tag}");
    if let Some(taken) = existing(place, id, &name).await? {
        return Ok(taken);
    }
    let state = inspect(&place.connected, &place.container).await?.filter(is_running);
    let Some(image) = state.and_then(|state| state.image) else { return Err(gone(&place.tag)) };
    let helper = format!("{}-layer", labels::container_name(&tag));
    // What an earlier attempt left.
    remove(&place.connected, &held, &helper).await?;
    let done = keep(place, &held, &helper, &image, &tag).await;
    remove(&place.connected, &held, &helper).await?;
    done?;
    existing(place, id, &name).await?.ok_or_else(|| {
        Error::new(ErrorKind::BackendFailed, "the docker engine lost the snapshot that it made")
    })
}

async fn existing(place: &Place, id: SnapshotId, name: &str) -> Result<Option<Taken>> {
    let image = optional(place.connected.api.inspect_image(name).await, "look for a snapshot")?;
    Ok(image.map(|image| {
        let labels = image.config.and_then(|config| config.labels).unwrap_or_default();
        let size_bytes = labels.get(labels::SIZE).and_then(|size| size.parse().ok());
        Taken { snapshot_id: id, size_bytes, data: serde_json::json!({ "image": name }) }
    }))
}

async fn keep(place: &Place, held: &Held, helper: &str, image: &str, tag: &str) -> Result<()> {
    let body = create::helper(tag, image, Vec::new(), &[(labels::USER, place.user.clone())]);
    let options = CreateContainerOptionsBuilder::default().name(helper).build();
    let api = place.connected.api.clone();
    locks::finish(held, async move {
        api.create_container(Some(options), body).await.map(drop).map_err(|error| map(error, "make a layer"))
    })
    .await?;
    // Stopped, so that no file is caught half written; a crash here leaves a stopped sandbox, whose deadline runs on.
    let paused = pause::stop(place).await?;
    let copied = copy_workspace(place, helper).await;
    if paused {
        pause::go_on(place).await?;
    }
    let size = copied?;
    let options = CommitContainerOptionsBuilder::default()
        .container(helper)
        .repo(SNAPSHOT_REPOSITORY)
        .tag(tag)
        .comment("workspace of a sandbox")
        .pause(false)
        .changes(&format!("LABEL {}={size}", labels::SIZE))
        .build();
    let api = place.connected.api.clone();
    locks::finish(held, async move {
        let config = ContainerConfig::default();
        api.commit_container(options, config).await.map(drop).map_err(|error| map(error, "commit a snapshot"))
    })
    .await
}

/// From the volume of the sandbox into the layer of the helper, owners and modes as they are.
async fn copy_workspace(place: &Place, helper: &str) -> Result<u64> {
    let from = DownloadFromContainerOptionsBuilder::default().path(WORKSPACE).build();
    let download = place.connected.api.download_from_container(&place.container, Some(from));
    let size = Arc::new(AtomicU64::new(0));
    let counter = size.clone();
    let stream = download.map(move |piece| match piece {
        Ok(piece) => {
            counter.fetch_add(piece.len() as u64, Ordering::Relaxed);
            Ok(piece)
        }
        Err(error) => Err(std::io::Error::other(error)),
    });
    let to = UploadToContainerOptionsBuilder::default().path("/").build();
    let body = bollard::body_try_stream(stream);
    let uploaded = place.connected.api.upload_to_container(helper, Some(to), body).await;
    uploaded.map_err(|error| map(error, "copy the workspace"))?;
    Ok(size.load(Ordering::Relaxed))
}
