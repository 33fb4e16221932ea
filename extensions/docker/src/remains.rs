//! Everything of ours in the engine, found by its label: listing and removal.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bollard::models::ContainerSummaryStateEnum;
use bollard::query_parameters::{
    ListContainersOptionsBuilder, ListImagesOptionsBuilder, ListVolumesOptionsBuilder,
    RemoveImageOptionsBuilder, RemoveVolumeOptionsBuilder,
};
use sandboxer_core::extension::{CleanupReport, Found, Leftover};
use sandboxer_core::{Error, ErrorKind, Result};

use crate::client::Connected;
use crate::errors::{map, optional};
use crate::labels;
use crate::locks::{self, Held};
use crate::provision::remove;

/// How long the engine may take to finish a removal that it has begun.
const GOING_LIMIT: Duration = Duration::from_secs(20);
/// How long it may hold a volume after that.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);

/// One object of ours.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    tag: String,
    object: Object,
    alive: bool,
}

#[derive(Clone, Debug)]
enum Object {
    Container { id: String, name: String },
    Volume { name: String },
    Image { name: String },
}

impl Object {
    fn name(&self) -> String {
        match self {
            Self::Container { name, .. } => format!("container {name}"),
            Self::Volume { name } => format!("volume {name}"),
            Self::Image { name } => format!("image {name}"),
        }
    }
}

/// All parts under one tag, or of every tag. Volumes come after what uses them.
pub(crate) async fn parts(connected: &Connected, tag: Option<&str>) -> Result<Vec<Part>> {
    let label = match tag {
        Some(tag) => format!("{}={tag}", labels::TAG),
        None => labels::TAG.to_owned(),
    };
    let (containers, volumes, images) = tokio::try_join!(
        containers(connected, &label),
        volumes(connected, &label),
        images(connected, &label)
    )?;
    Ok(containers.into_iter().chain(volumes).chain(images).collect())
}

fn tag_of(labels: &HashMap<String, String>) -> Option<String> {
    labels.get(labels::TAG).cloned()
}

async fn containers(connected: &Connected, label: &str) -> Result<Vec<Part>> {
    let options = ListContainersOptionsBuilder::default().all(true).filters(&labels::filter(label)).build();
    let listed =
        connected.api.list_containers(Some(options)).await.map_err(|error| map(error, "list containers"))?;
    let parts = listed.into_iter().filter_map(|container| {
        let labels = container.labels.unwrap_or_default();
        let id = container.id?;
        let name = container.names.and_then(|names| names.into_iter().next()).unwrap_or_else(|| id.clone());
        let running = matches!(
            container.state,
            Some(ContainerSummaryStateEnum::RUNNING | ContainerSummaryStateEnum::PAUSED)
        );
        let alive = running && labels.get(labels::KIND).map(String::as_str) == Some(labels::KIND_SANDBOX);
        let name = name.trim_start_matches('/').to_owned();
        Some(Part { tag: tag_of(&labels)?, object: Object::Container { id, name }, alive })
    });
    Ok(parts.collect())
}

async fn volumes(connected: &Connected, label: &str) -> Result<Vec<Part>> {
    let options = ListVolumesOptionsBuilder::default().filters(&labels::filter(label)).build();
    let listed =
        connected.api.list_volumes(Some(options)).await.map_err(|error| map(error, "list volumes"))?;
    let parts = listed.volumes.unwrap_or_default().into_iter().filter_map(|volume| {
        Some(Part {
            tag: tag_of(&volume.labels)?,
            object: Object::Volume { name: volume.name },
            alive: false,
        })
    });
    Ok(parts.collect())
}

async fn images(connected: &Connected, label: &str) -> Result<Vec<Part>> {
    let options = ListImagesOptionsBuilder::default().filters(&labels::filter(label)).build();
    let listed = connected.api.list_images(Some(options)).await.map_err(|error| map(error, "list images"))?;
    let parts = listed.into_iter().filter_map(|image| {
        let name = image.repo_tags.into_iter().find(|name| name != "<none>:<none>").unwrap_or(image.id);
        Some(Part { tag: tag_of(&image.labels)?, object: Object::Image { name }, alive: true })
    });
    Ok(parts.collect())
}

pub(crate) async fn list(connected: &Connected, prefix: &str) -> Result<Vec<Found>> {
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    for part in parts(connected, None).await?.into_iter().filter(|part| part.tag.starts_with(prefix)) {
        let entry = found.entry(part.tag.clone()).or_insert_with(|| Found {
            tag: part.tag.clone(),
            alive: false,
            parts: Vec::new(),
        });
        entry.alive |= part.alive;
        entry.parts.push(part.object.name());
    }
    Ok(found.into_values().collect())
}

/// Removes everything under a tag and says what it could not.
pub(crate) async fn clear(connected: &Connected, tag: &str) -> Result<CleanupReport> {
    if !labels::is_tag(tag) {
        return Ok(CleanupReport::default());
    }
    // Waits for a call of this process that is already with the engine.
    let held = locks::hold(tag).await;
    clear_held(connected, &held, tag).await
}

/// The same for who holds the tag already.
pub(crate) async fn clear_held(connected: &Connected, held: &Held, tag: &str) -> Result<CleanupReport> {
    let mut report = CleanupReport::default();
    for part in parts(connected, Some(tag)).await? {
        let what = part.object.name();
        match take_away(connected, held, &part.object).await {
            Ok(()) => report.removed.push(what),
            Err(error) if error.kind() == ErrorKind::Unreachable => return Err(error),
            Err(error)
                if error.kind() == ErrorKind::Conflict && matches!(part.object, Object::Image { .. }) =>
            {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!("sandboxes that live were started from {tag}"),
                )
                .with_hint("destroy them first")
                .with_source(error));
            }
            Err(error) => report.left.push(Leftover { what, reason: error.chain().join(": ") }),
        }
    }
    Ok(report)
}

async fn take_away(connected: &Connected, held: &Held, object: &Object) -> Result<()> {
    match object {
        Object::Container { id, .. } => {
            remove(connected, held, id).await?;
            until_gone(connected, id).await
        }
        Object::Volume { name } => remove_volume(connected, name).await,
        Object::Image { name } => {
            // Not by force: that takes the name from an image that containers still stand on, and leaves the image.
            let options = RemoveImageOptionsBuilder::default().build();
            let removed = connected.api.remove_image(name, Some(options), None).await;
            optional(removed, "remove an image").map(drop)
        }
    }
}

/// The engine lets go of a volume a moment after its container is gone.
async fn remove_volume(connected: &Connected, name: &str) -> Result<()> {
    let start = tokio::time::Instant::now();
    loop {
        let options = RemoveVolumeOptionsBuilder::default().build();
        match optional(connected.api.remove_volume(name, Some(options)).await, "remove a volume") {
            Err(error) if error.kind() == ErrorKind::Conflict && start.elapsed() < RELEASE_LIMIT => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            other => return other.map(drop),
        }
    }
}

/// A removal that somebody else began goes on after the engine has answered.
async fn until_gone(connected: &Connected, id: &str) -> Result<()> {
    let start = tokio::time::Instant::now();
    let mut pause = Duration::from_millis(10);
    while crate::provision::inspect(connected, id).await?.is_some() {
        if start.elapsed() > GOING_LIMIT {
            return Err(sandboxer_core::Error::new(
                ErrorKind::CleanupFailed,
                "the docker engine does not finish its removal",
            ));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(200));
    }
    Ok(())
}
