//! From a request to the container that the engine is asked for: hardened unless a profile says less of something.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountType, MountVolumeOptions, ResourcesUlimits,
};
use sandboxer_core::extension::ProvisionRequest;
use sandboxer_core::profile::{MountAccess, WorkspaceAccess};
use sandboxer_core::{Error, ErrorKind, Result};

use crate::exec::WORKSPACE;
use crate::labels;

const MAIN: &str = include_str!("scripts/main.sh");
const MEBIBYTE: i64 = 1 << 20;
/// What a profile gets that names no limit.
const DEFAULT_MEMORY_MB: u64 = 2_048;
const DEFAULT_CPU: f64 = 2.0;
const DEFAULT_PIDS: u64 = 512;
/// For the deadline and for the logs of background commands.
const RUN_SIZE: &str = "rw,nosuid,nodev,noexec,mode=0755,size=64m";

/// What was found out before anything is made.
pub(crate) struct Facts {
    /// The image as the engine knows it.
    pub(crate) image: String,
    pub(crate) user: String,
    /// Resolved sources of the mounts, in their order.
    pub(crate) sources: Vec<String>,
    /// A helper that holds the filled workspace, which this container only reads.
    pub(crate) workspace_from: Option<String>,
}

/// The limits that are asked for.
pub(crate) struct Wanted {
    pub(crate) memory: i64,
    pub(crate) nano_cpus: i64,
    pub(crate) pids: i64,
}

pub(crate) fn wanted(request: &ProvisionRequest) -> Result<Wanted> {
    let resources = &request.spec.resources;
    let machine = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
    // More than there is is no limit at all, and the engine refuses it.
    let cpu = resources.cpu.unwrap_or(DEFAULT_CPU).min(machine);
    if !(0.01..=1_024.0).contains(&cpu) {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{cpu} processors cannot be given")));
    }
    let memory =
        i64::try_from(resources.memory_mb.unwrap_or(DEFAULT_MEMORY_MB)).unwrap_or(i64::MAX / MEBIBYTE);
    let pids = i64::try_from(resources.pids.unwrap_or(DEFAULT_PIDS)).unwrap_or(i64::MAX);
    #[allow(clippy::cast_possible_truncation, reason = "at most 1024 billion, checked above")]
    let nano_cpus = (cpu * 1e9) as i64;
    Ok(Wanted { memory: memory.saturating_mul(MEBIBYTE), nano_cpus, pids })
}

/// The whole request. Its labels are the tag, so that whatever comes to be is found.
pub(crate) fn body(request: &ProvisionRequest, facts: &Facts) -> Result<ContainerCreateBody> {
    let spec = &request.spec;
    let wanted = wanted(request)?;
    let temporary = format!("rw,nosuid,nodev,exec,mode=1777,size={}", (wanted.memory / 2).max(MEBIBYTE));
    let deadline = request.expires_at.as_second().saturating_add(1).to_string();
    let other_kernel = i32::from(spec.docker.runtime.as_deref().is_some_and(|runtime| runtime != "runc"));
    let idle = request.idle_reap.map_or(0, |idle| idle.as_millis().div_ceil(1_000)).to_string();
    let mut env: HashMap<String, String> =
        HashMap::from([("HOME".into(), home(spec.workspace.access).into())]);
    env.extend(spec.variables.clone());
    let mut mounts = workspace(request, facts);
    mounts.extend(spec.mounts.iter().zip(&facts.sources).map(|(mount, source)| Mount {
        typ: Some(MountType::BIND),
        source: Some(source.clone()),
        target: Some(mount.target.clone()),
        read_only: Some(mount.access == MountAccess::Ro),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }));
    let host_config = HostConfig {
        auto_remove: Some(true),
        init: Some(true),
        network_mode: Some("none".into()),
        cap_drop: Some(vec!["ALL".into()]),
        security_opt: Some(vec!["no-new-privileges".into()]),
        readonly_rootfs: Some(true),
        tmpfs: Some(HashMap::from([
            ("/tmp".into(), temporary.clone()),
            ("/var/tmp".into(), temporary),
            ("/run".into(), RUN_SIZE.into()),
        ])),
        mounts: Some(mounts),
        volumes_from: facts.workspace_from.as_ref().map(|helper| vec![format!("{helper}:ro")]),
        memory: Some(wanted.memory),
        memory_swap: Some(wanted.memory),
        nano_cpus: Some(wanted.nano_cpus),
        pids_limit: Some(wanted.pids),
        ulimits: Some(vec![ResourcesUlimits { name: Some("core".into()), soft: Some(0), hard: Some(0) }]),
        ipc_mode: Some("private".into()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        runtime: spec.docker.runtime.clone(),
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".into()),
            config: Some(HashMap::from([("max-size".into(), "64k".into()), ("max-file".into(), "1".into())])),
        }),
        ..HostConfig::default()
    };
    Ok(ContainerCreateBody {
        image: Some(facts.image.clone()),
        hostname: Some("sandbox".into()),
        // Root without capabilities: the one process that keeps the deadline. Commands run as `facts.user`.
        user: Some("0:0".into()),
        working_dir: Some(WORKSPACE.into()),
        entrypoint: Some(vec![
            "/bin/sh".into(),
            "-c".into(),
            MAIN.into(),
            "sandboxer".into(),
            deadline,
            idle,
            other_kernel.to_string(),
        ]),
        cmd: Some(Vec::new()),
        env: Some(env.into_iter().map(|(key, value)| format!("{key}={value}")).collect()),
        // An image's own check would run commands that nobody asked for.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".into()]), ..HealthConfig::default() }),
        stop_signal: Some("SIGTERM".into()),
        labels: Some(labels_of(request, &facts.user)?),
        host_config: Some(host_config),
        ..ContainerCreateBody::default()
    })
}

fn labels_of(request: &ProvisionRequest, user: &str) -> Result<HashMap<String, String>> {
    Ok([
        (labels::TAG, request.tag.clone()),
        (labels::KIND, labels::KIND_SANDBOX.to_owned()),
        (labels::CONFIG_HASH, request.spec.config_hash()?),
        (labels::EXPIRES_AT, request.expires_at.to_string()),
        (labels::USER, user.to_owned()),
        (labels::MAKER, std::process::id().to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect())
}

/// A home that can be written where there is one.
fn home(access: WorkspaceAccess) -> &'static str {
    match access {
        WorkspaceAccess::Ro => "/tmp",
        WorkspaceAccess::Rw | WorkspaceAccess::None => WORKSPACE,
    }
}

/// Whether the workspace is filled first and then only read.
pub(crate) fn is_read_only(request: &ProvisionRequest) -> bool {
    request.spec.workspace.access == WorkspaceAccess::Ro
}

fn workspace(request: &ProvisionRequest, facts: &Facts) -> Vec<Mount> {
    match facts.workspace_from {
        // It comes with the helper's volume.
        Some(_) => Vec::new(),
        None => vec![volume(&request.tag, is_read_only(request))],
    }
}

/// A volume without a name, which the engine removes together with the container, with our label all the same.
pub(crate) fn volume(tag: &str, read_only: bool) -> Mount {
    Mount {
        typ: Some(MountType::VOLUME),
        target: Some(WORKSPACE.into()),
        read_only: Some(read_only),
        volume_options: Some(MountVolumeOptions {
            labels: Some(HashMap::from([(labels::TAG.to_owned(), tag.to_owned())])),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    }
}

/// A container that is never started: it only holds a volume or a layer while it is filled.
pub(crate) fn helper(
    tag: &str,
    image: &str,
    mounts: Vec<Mount>,
    extra: &[(&str, String)],
) -> ContainerCreateBody {
    let mut labels = HashMap::from([
        (labels::TAG.to_owned(), tag.to_owned()),
        (labels::KIND.to_owned(), labels::KIND_HELPER.to_owned()),
    ]);
    labels.extend(extra.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    ContainerCreateBody {
        image: Some(image.to_owned()),
        // An image may have no command of its own, without which the engine makes no container.
        entrypoint: Some(vec!["/bin/sh".into()]),
        labels: Some(labels),
        host_config: Some(HostConfig {
            network_mode: Some("none".into()),
            cap_drop: Some(vec!["ALL".into()]),
            mounts: Some(mounts),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}
