//! Whether a sandbox lives, and what it uses.

use std::collections::HashMap;
use std::time::Duration;

use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{EventsOptionsBuilder, StatsOptionsBuilder};
use futures::StreamExt as _;
use jiff::Timestamp;
use sandboxer_core::Result;
use sandboxer_core::extension::{BackendStatus, Life, Usage};

use crate::exec::Place;
use crate::provision::{inspect, is_running};

/// How long the engine may take to look through its events.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) async fn life(place: &Place) -> Result<Life> {
    Ok(match inspect(&place.connected, &place.container).await? {
        Some(state) if is_running(&state) => Life::Alive,
        Some(state) => Life::Ended { at: ended_at(&state) },
        None => Life::Ended { at: died_at(place).await },
    })
}

/// When a container that the engine has cleared away ended, as far as the engine remembers: it keeps some hundred events.
async fn died_at(place: &Place) -> Option<Timestamp> {
    let of_end = HashMap::from([
        ("container".to_owned(), vec![place.container.clone()]),
        ("event".to_owned(), vec!["die".to_owned()]),
    ]);
    // With an end the answer is whole at once, and not a stream of what comes. To the nanosecond: it may be just now.
    let now = Timestamp::now();
    let until = format!("{}.{:09}", now.as_second(), now.subsec_nanosecond());
    let options = EventsOptionsBuilder::default().since("1").until(&until).filters(&of_end).build();
    let last = async {
        let mut events = std::pin::pin!(place.connected.api.events(Some(options)));
        let mut last = None;
        while let Some(Ok(event)) = events.next().await {
            last = event.time_nano.or(last);
        }
        last
    };
    let nanoseconds = tokio::time::timeout(PATIENCE, last).await.ok()??;
    Timestamp::from_nanosecond(i128::from(nanoseconds)).ok()
}

/// When its first process ended, by the engine's clock. One that never ran has a year of its own, the first.
fn ended_at(state: &ContainerInspectResponse) -> Option<Timestamp> {
    let text = state.state.as_ref()?.finished_at.as_deref()?;
    text.parse::<Timestamp>().ok().filter(|at| *at > Timestamp::UNIX_EPOCH)
}

pub(crate) async fn status(place: &Place) -> Result<BackendStatus> {
    let state = inspect(&place.connected, &place.container).await?;
    Ok(match state {
        Some(state) if is_running(&state) => BackendStatus::alive(usage(place).await, detail(&state)),
        Some(state) => BackendStatus::ended(ended_at(&state), serde_json::Value::Null),
        None => BackendStatus::ended(died_at(place).await, serde_json::Value::Null),
    })
}

/// One sample; an engine that cannot count says nothing.
async fn usage(place: &Place) -> Option<Usage> {
    let options = StatsOptionsBuilder::default().stream(false).one_shot(true).build();
    let mut stream = std::pin::pin!(place.connected.api.stats(&place.container, Some(options)));
    let sample = stream.next().await?.ok()?;
    let cpu =
        sample.cpu_stats.as_ref().and_then(|cpu| cpu.cpu_usage.as_ref()).and_then(|usage| usage.total_usage);
    Some(Usage {
        memory_bytes: sample.memory_stats.as_ref().and_then(|memory| memory.usage),
        cpu_usec: cpu.map(|nanoseconds| nanoseconds / 1_000),
        pids: sample.pids_stats.as_ref().and_then(|pids| pids.current),
        disk_bytes: None,
    })
}

fn detail(state: &ContainerInspectResponse) -> serde_json::Value {
    let host = state.host_config.clone().unwrap_or_default();
    let config = state.config.clone().unwrap_or_default();
    serde_json::json!({
        "container": state.name.as_deref().map(|name| name.trim_start_matches('/')),
        "id": state.id,
        "image": state.image,
        "runtime": host.runtime,
        "started_at": state.state.as_ref().and_then(|state| state.started_at.clone()),
        "network": host.network_mode,
        "read_only_root": host.readonly_rootfs,
        "memory_bytes": host.memory,
        "nano_cpus": host.nano_cpus,
        "pids_limit": host.pids_limit,
        "labels": config.labels,
        "mounts": state.mounts.iter().flatten().map(|mount| serde_json::json!({
            "type": mount.typ,
            "source": mount.source,
            "target": mount.destination,
            "writable": mount.rw,
        })).collect::<Vec<_>>(),
    })
}
