//! Whether a sandbox lives, and what it uses.

use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::StatsOptionsBuilder;
use futures::StreamExt as _;
use sandboxer_core::Result;
use sandboxer_core::extension::{BackendStatus, Usage};

use crate::exec::Place;
use crate::provision::{inspect, is_running};

pub(crate) async fn is_alive(place: &Place) -> Result<bool> {
    Ok(inspect(&place.connected, &place.container).await?.is_some_and(|state| is_running(&state)))
}

pub(crate) async fn status(place: &Place) -> Result<BackendStatus> {
    let state = inspect(&place.connected, &place.container).await?;
    let Some(state) = state.filter(is_running) else {
        return Ok(BackendStatus { alive: false, usage: None, detail: serde_json::Value::Null });
    };
    Ok(BackendStatus { alive: true, usage: usage(place).await, detail: detail(&state) })
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
