//! The compose file that really runs: ours, made from the judged one. It is JSON, which is YAML without its surprises.

mod limits;
mod pins;

use sandboxer_core::profile::{Danger, Resources, WorkspaceAccess};
use serde_json::{Map, Value as Json, json};

use crate::file::node::escape;
use crate::judge::{Mount, Service, Source, Stack};

/// On everything that belongs to a sandbox, so that it is found again without anything else.
pub(crate) const TAG_LABEL: &str = "dev.sandboxer.stack";
/// Where commands find the bundle.
pub(crate) const WORKSPACE: &str = "/workspace";
/// Needed by hardly any service, and the two of the engine's default set that reach beyond the container.
pub(crate) const DROPPED_CAPABILITIES: [&str; 2] = ["MKNOD", "NET_RAW"];
/// What is kept of a service's log, per file and in files.
const LOG_SIZE: &str = "10m";
const LOG_FILES: &str = "3";

/// What our file depends on beside the judged one.
pub(crate) struct Plan<'a> {
    pub(crate) tag: &'a str,
    /// The bundle's absolute path on the host.
    pub(crate) project: &'a str,
    pub(crate) resources: &'a Resources,
    pub(crate) allowed: &'a [Danger],
    /// The service that commands go to, and how it sees the bundle.
    pub(crate) main: &'a str,
    pub(crate) access: WorkspaceAccess,
}

impl Plan<'_> {
    fn is_open(&self) -> bool {
        self.allowed.contains(&Danger::OpenNetwork)
    }

    fn labels(&self) -> Json {
        json!({ TAG_LABEL: self.tag })
    }
}

/// Our compose file.
pub(crate) fn rewrite(stack: &Stack, plan: &Plan<'_>) -> Json {
    let shares = limits::split(stack, plan.resources);
    let pinned = pins::sources(stack);
    let services: Map<String, Json> = stack
        .services
        .iter()
        .zip(shares)
        .map(|(one, share)| (one.name.clone(), service(one, &share, &pinned, plan)))
        .collect();
    let mut networks = Map::new();
    networks.insert("default".into(), network(&Map::new(), plan));
    for (name, config) in &stack.networks {
        networks.insert(name.clone(), network(config, plan));
    }
    let volumes: Map<String, Json> = stack
        .volumes
        .iter()
        .map(|(name, config)| {
            let mut config = config.clone();
            if !config.contains_key("external") {
                config.insert("labels".into(), plan.labels());
            }
            (name.clone(), Json::Object(config))
        })
        .collect();
    json!({ "services": services, "networks": networks, "volumes": volumes })
}

fn network(config: &Map<String, Json>, plan: &Plan<'_>) -> Json {
    let mut config = config.clone();
    if config.contains_key("external") {
        return Json::Object(config);
    }
    if !plan.is_open() {
        config.insert("internal".into(), Json::Bool(true));
    }
    config.insert("labels".into(), plan.labels());
    Json::Object(config)
}

fn service(service: &Service, share: &limits::Share, pinned: &[String], plan: &Plan<'_>) -> Json {
    let mut out = service.config.clone();
    let mut labels = out.remove("labels").and_then(|labels| labels.as_object().cloned()).unwrap_or_default();
    labels.insert(TAG_LABEL.into(), json!(plan.tag));
    out.insert("labels".into(), Json::Object(labels));
    out.insert(
        "logging".into(),
        json!({ "driver": "json-file", "options": { "max-size": LOG_SIZE, "max-file": LOG_FILES } }),
    );
    harden(&mut out);
    share.apply(&mut out);
    if service.replicas != 1 {
        out.insert("scale".into(), json!(service.replicas));
    }
    if !service.env_files.is_empty() {
        let files: Vec<String> =
            service.env_files.iter().map(|path| escape(&inside(plan.project, path))).collect();
        out.insert("env_file".into(), json!(files));
    }
    if let Some(build) = &service.build {
        let mut config = build.config.clone();
        config.insert("context".into(), Json::String(escape(&inside(plan.project, &build.context))));
        let mut labels =
            config.remove("labels").and_then(|labels| labels.as_object().cloned()).unwrap_or_default();
        labels.insert(TAG_LABEL.into(), json!(plan.tag));
        config.insert("labels".into(), Json::Object(labels));
        out.insert("build".into(), Json::Object(config));
    }
    let is_own = service.own_network_mode.is_some();
    if plan.is_open() && !is_own && !service.ports.is_empty() {
        // An internal network publishes nothing; there, the address of the container itself is used.
        let ports: Vec<String> = service
            .ports
            .iter()
            .map(|port| format!("127.0.0.1::{}/{}", port.number, if port.udp { "udp" } else { "tcp" }))
            .collect();
        out.insert("ports".into(), json!(ports));
    }
    let mut mounts = service.mounts.clone();
    if let Some(workspace) = workspace(service, plan) {
        mounts.push(workspace);
    }
    let mut written: Vec<Json> =
        pins::pinned(&mounts, pinned).iter().map(|one| mount(one, plan.project)).collect();
    // A mount below another one must come after it.
    written.sort_by_key(|one| one["target"].as_str().map_or(0, |target| target.matches('/').count()));
    if !written.is_empty() {
        out.insert("volumes".into(), Json::Array(written));
    }
    Json::Object(out)
}

/// No service gains privileges, and none has those that it does not ask for by name.
fn harden(out: &mut Map<String, Json>) {
    let text = |value: Option<Json>| -> Vec<String> {
        match value {
            Some(Json::Array(list)) => {
                list.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect()
            }
            _ => Vec::new(),
        }
    };
    let mut options = text(out.remove("security_opt"));
    if !options.iter().any(|option| option.starts_with("no-new-privileges")) {
        options.push("no-new-privileges:true".into());
    }
    out.insert("security_opt".into(), json!(options));
    let added = text(out.get("cap_add").cloned());
    let mut dropped = text(out.remove("cap_drop"));
    for capability in DROPPED_CAPABILITIES {
        let is = |name: &String| {
            name.trim_start_matches("CAP_").eq_ignore_ascii_case(capability)
                || name.eq_ignore_ascii_case("ALL")
        };
        if !dropped.iter().any(is) && !added.iter().any(is) {
            dropped.push(capability.into());
        }
    }
    out.insert("cap_drop".into(), json!(dropped));
}

/// The bundle as the workspace of the main service, unless the service has something of its own there.
fn workspace(service: &Service, plan: &Plan<'_>) -> Option<Mount> {
    let below = |path: &str| path == WORKSPACE || path.starts_with("/workspace/");
    let working_dir = service.config.get("working_dir").and_then(Json::as_str).unwrap_or_default();
    let taken =
        below(working_dir) || service.mounts.iter().any(|mount| below(mount.target.trim_end_matches('/')));
    (service.name == plan.main && plan.access != WorkspaceAccess::None && !taken).then(|| Mount {
        source: Source::Bundle { path: String::new(), missing: false },
        target: WORKSPACE.into(),
        read_only: plan.access == WorkspaceAccess::Ro,
        rest: Map::new(),
    })
}

fn mount(mount: &Mount, project: &str) -> Json {
    let mut out = mount.rest.clone();
    out.insert("target".into(), Json::String(escape(&mount.target)));
    let (kind, source) = match &mount.source {
        Source::Bundle { path, .. } => ("bind", Some(escape(&inside(project, path)))),
        Source::Host(path) => ("bind", Some(escape(path))),
        Source::Volume(name) => ("volume", Some(name.clone())),
        Source::Anonymous => ("volume", None),
        Source::Tmpfs => ("tmpfs", None),
    };
    out.insert("type".into(), json!(kind));
    if let Some(source) = source {
        out.insert("source".into(), Json::String(source));
    }
    if mount.read_only {
        out.insert("read_only".into(), Json::Bool(true));
    }
    Json::Object(out)
}

fn inside(project: &str, path: &str) -> String {
    if path.is_empty() { project.to_owned() } else { format!("{project}/{path}") }
}

#[cfg(test)]
mod tests;
