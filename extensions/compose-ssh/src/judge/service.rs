//! One service.

use sandboxer_core::Result;
use sandboxer_core::profile::Danger;
use sandboxer_core::suggest::printable;
use serde_json::{Value as Json, json};

use super::keys::{self, DROPPED, KEPT};
use super::{Judge, Service, number, unknown};
use crate::file::node::{Entry, Node};

/// More copies of one service than this are a mistake.
const MAX_REPLICAS: u64 = 32;
/// Runtimes that isolate at least as well as the default one.
const RUNTIMES: [&str; 6] =
    ["runc", "runsc", "kata", "kata-runtime", "io.containerd.runc.v2", "io.containerd.kata.v2"];

impl Judge<'_> {
    pub(super) fn service(&mut self, name: &str, node: &Node) -> Result<Service> {
        let mut service = Service { name: name.to_owned(), replicas: 1, ..Service::default() };
        for entry in node.map(&format!("the service `{}`", printable(name)))? {
            self.service_key(&mut service, entry)?;
        }
        if service.build.is_none() && !service.config.contains_key("image") {
            return Err(node
                .place
                .invalid(format!("the service `{}` has neither an image nor a build", printable(name))));
        }
        if let Some(build) = &service.build
            && service.config.remove("image").is_some()
        {
            // The name would be put on the built image, over whatever other stacks of the host mean by it.
            let context = printable(&build.context);
            self.note(format!("{}: the image built from `{context}` gets a name of ours", printable(name)));
        }
        service.optional = service
            .config
            .get("profiles")
            .is_some_and(|list| list.as_array().is_some_and(|list| !list.is_empty()));
        if service.replicas == 0 {
            service.optional = true;
        }
        Ok(service)
    }

    fn service_key(&mut self, service: &mut Service, entry: &Entry) -> Result<()> {
        let (key, node, place) = (entry.key.as_str(), &entry.node, &entry.place);
        if KEPT.contains(&key) {
            if !node.is_null() {
                service.config.insert(key.to_owned(), node.json());
            }
            return Ok(());
        }
        if let Some((_, why)) = DROPPED.iter().find(|(dropped, _)| *dropped == key) {
            if !why.is_empty() {
                self.note(format!("{}: `{key}` is left out: {why}", printable(&service.name)));
            }
            return Ok(());
        }
        match key {
            "privileged" => {
                if node.is_on() && self.ask(place, Danger::Privileged, "the service is privileged") {
                    service.config.insert(key.into(), Json::Bool(true));
                }
            }
            "cap_add" | "devices" | "device_cgroup_rules" | "credential_spec" | "gpus" | "cgroup_parent" => {
                let empty = node.is_null() || node.one_or_many().is_empty();
                if !empty
                    && self.ask(first_place(entry), Danger::Privileged, format!("`{key}` is not allowed"))
                {
                    service.config.insert(key.into(), node.json());
                }
            }
            "oom_kill_disable" => {
                if node.is_on() && self.ask(place, Danger::Privileged, "`oom_kill_disable` is not allowed") {
                    service.config.insert(key.into(), Json::Bool(true));
                }
            }
            "oom_score_adj" => {
                let negative = node.scalar("`oom_score_adj`")?.trim_start().starts_with('-');
                if !negative
                    || self.ask(place, Danger::Privileged, "a negative `oom_score_adj` is not allowed")
                {
                    service.config.insert(key.into(), node.json());
                }
            }
            "security_opt" => self.security_opt(service, entry)?,
            "runtime" => {
                let runtime = node.scalar("`runtime`")?;
                let known = RUNTIMES.contains(&runtime.as_str());
                if known
                    || self.ask(
                        place,
                        Danger::Privileged,
                        format!("the runtime `{}` is not known to isolate", printable(&runtime)),
                    )
                {
                    service.config.insert(key.into(), node.json());
                }
            }
            "pid" | "ipc" | "uts" | "userns_mode" | "cgroup" => self.namespace(service, entry)?,
            "network_mode" => self.network_mode(service, entry)?,
            "networks" => self.service_networks(service, entry)?,
            "external_links" => {
                if !node.one_or_many().is_empty()
                    && self.ask(
                        place,
                        Danger::OpenNetwork,
                        "`external_links` reach containers outside the stack",
                    )
                {
                    service.config.insert(key.into(), node.json());
                }
            }
            "use_api_socket" => {
                if node.is_on() {
                    self.ask(
                        place,
                        Danger::DockerSocket,
                        "`use_api_socket` puts the engine's socket into the container",
                    );
                    self.refuse(place, "`use_api_socket` is not supported; mount the socket under `volumes`");
                }
            }
            "volumes" => self.volumes(service, node)?,
            "volumes_from" => self.volumes_from(service, entry)?,
            "secrets" | "configs" => self.file_references(service, entry)?,
            "environment" => {
                let environment = self.environment(node)?;
                service.config.insert(key.into(), environment);
            }
            "env_file" => self.env_file(service, node)?,
            "labels" => {
                let labels = self.labels(node)?;
                service.config.insert(key.into(), Json::Object(labels));
            }
            "ports" => self.ports(service, node)?,
            "build" => service.build = Some(self.build(entry)?),
            "deploy" => self.deploy(service, node)?,
            "scale" => service.replicas = replicas(node)?,
            "cpus" => service.wants.cpus = Some(cpus(node)?),
            "mem_limit" => service.wants.memory_bytes = Some(bytes(node)?),
            // Zero and below mean "no limit" to the engine, which is not for the file to say.
            "pids_limit" => service.wants.pids = number(node, "`pids_limit`").ok().filter(|pids| *pids > 0),
            "pull_policy" => pull_policy(service, node)?,
            key if key.starts_with("x-") => {}
            _ => return Err(unknown(entry, "a service", &keys::all())),
        }
        Ok(())
    }

    fn security_opt(&mut self, service: &mut Service, entry: &Entry) -> Result<()> {
        let mut kept = Vec::new();
        for option in entry.node.list("`security_opt`")? {
            let text = option.scalar("a security option")?;
            let plain = text.replace('=', ":").to_ascii_lowercase();
            let harmless = matches!(plain.as_str(), "no-new-privileges" | "no-new-privileges:true")
                || (plain.starts_with("label:") && plain != "label:disable")
                || plain == "apparmor:docker-default";
            if harmless {
                if !plain.starts_with("no-new-privileges") {
                    kept.push(Json::String(text));
                }
            } else if self.ask(
                &option.place,
                Danger::Privileged,
                format!("the security option `{}` is not allowed", printable(&text)),
            ) {
                kept.push(Json::String(crate::file::node::escape(&text)));
            }
        }
        service.config.insert("security_opt".into(), Json::Array(kept));
        Ok(())
    }

    /// `pid`, `ipc`, `uts`, `userns_mode`, `cgroup`.
    fn namespace(&mut self, service: &mut Service, entry: &Entry) -> Result<()> {
        let key = entry.key.as_str();
        let mode = entry.node.scalar(&format!("`{key}`"))?;
        let harmless = match key {
            "ipc" => {
                matches!(mode.as_str(), "private" | "shareable" | "none" | "") || mode.starts_with("service:")
            }
            "pid" => mode.is_empty() || mode.starts_with("service:"),
            "cgroup" => mode == "private",
            _ => mode.is_empty(),
        };
        if harmless && (mode.is_empty() || key == "cgroup") {
            return Ok(());
        }
        let what = format!("`{key}: {}` leaves the container's own namespace", printable(&mode));
        if harmless || self.ask(&entry.place, Danger::HostNamespaces, what) {
            service.config.insert(key.to_owned(), entry.node.json());
        }
        Ok(())
    }

    fn deploy(&mut self, service: &mut Service, node: &Node) -> Result<()> {
        for entry in node.map("`deploy`")? {
            match entry.key.as_str() {
                "replicas" => service.replicas = replicas(&entry.node)?,
                "resources" => {
                    if let Some(limits) = entry.node.get("limits") {
                        for limit in limits.node.map("`limits`")? {
                            match limit.key.as_str() {
                                "cpus" => service.wants.cpus = Some(cpus(&limit.node)?),
                                "memory" => service.wants.memory_bytes = Some(bytes(&limit.node)?),
                                "pids" => {
                                    service.wants.pids =
                                        Some(number(&limit.node, "`pids`")?).filter(|pids| *pids > 0)
                                }
                                _ => {}
                            }
                        }
                    }
                    let devices = entry.node.get("reservations").and_then(|node| node.node.get("devices"));
                    if let Some(devices) = devices {
                        self.ask(&devices.place, Danger::Privileged, "reserved devices are not allowed");
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn first_place(entry: &Entry) -> &crate::file::node::Place {
    match &entry.node.value {
        crate::file::node::Value::List(items) => items.first().map_or(&entry.place, |item| &item.place),
        _ => &entry.place,
    }
}

fn replicas(node: &Node) -> Result<u64> {
    let count = number(node, "the number of replicas")?;
    if count > MAX_REPLICAS {
        return Err(node.place.invalid(format!("more than {MAX_REPLICAS} replicas of a service")));
    }
    Ok(count)
}

fn cpus(node: &Node) -> Result<f64> {
    let text = node.scalar("`cpus`")?;
    text.trim()
        .parse()
        .ok()
        .filter(|cpus: &f64| cpus.is_finite() && *cpus >= 0.0)
        .ok_or_else(|| node.place.invalid(format!("`cpus` must be a number, not `{}`", printable(&text))))
}

/// `64m`, `1gb`, `1.5g`, `1024`.
fn bytes(node: &Node) -> Result<u64> {
    let text = node.scalar("a memory limit")?;
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match &lower[digits.len()..] {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => 0,
    };
    let number: Option<f64> = digits.trim().parse().ok();
    match number.filter(|number| number.is_finite() && *number >= 0.0 && factor > 0) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked to be finite and not negative; a limit may be rounded"
        )]
        #[expect(clippy::cast_precision_loss, reason = "the factor is a power of two")]
        Some(number) => Ok((number * factor as f64) as u64),
        None => Err(node.place.invalid(format!("`{}` is not an amount of memory", printable(&text)))),
    }
}

/// Both generations of compose know `always`, `never` and `build`; the default is what `missing` says.
fn pull_policy(service: &mut Service, node: &Node) -> Result<()> {
    let policy = node.scalar("`pull_policy`")?;
    match policy.as_str() {
        "missing" | "if_not_present" => {}
        "always" | "never" | "build" => {
            service.config.insert("pull_policy".into(), json!(policy));
        }
        _ => return Err(node.place.invalid(format!("`{}` is no pull policy", printable(&policy)))),
    }
    Ok(())
}
