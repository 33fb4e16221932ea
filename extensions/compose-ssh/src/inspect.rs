//! What the engine says about the containers and networks of a stack.

use std::collections::BTreeMap;

use sandboxer_core::{Error, ErrorKind, Result};
use serde::Deserialize;

use crate::site::Site;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) config: Config,
    pub(crate) state: State,
    pub(crate) host_config: HostConfig,
    #[serde(default)]
    pub(crate) mounts: Vec<MountPoint>,
    pub(crate) network_settings: NetworkSettings,
    #[serde(default)]
    pub(crate) restart_count: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Config {
    #[serde(default)]
    pub(crate) labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(crate) working_dir: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct State {
    /// `created`, `running`, `paused`, `restarting`, `exited`, `dead`.
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) exit_code: i64,
    #[serde(default)]
    pub(crate) error: String,
    #[serde(default)]
    pub(crate) health: Option<Health>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Health {
    pub(crate) status: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct HostConfig {
    #[serde(default)]
    pub(crate) privileged: bool,
    #[serde(default)]
    pub(crate) network_mode: String,
    #[serde(default)]
    pub(crate) pid_mode: String,
    #[serde(default)]
    pub(crate) ipc_mode: String,
    #[serde(default, rename = "UTSMode")]
    pub(crate) uts_mode: String,
    #[serde(default)]
    pub(crate) cap_add: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) cap_drop: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) security_opt: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) memory: i64,
    #[serde(default)]
    pub(crate) nano_cpus: i64,
    #[serde(default)]
    pub(crate) pids_limit: Option<i64>,
    #[serde(default)]
    pub(crate) readonly_rootfs: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct MountPoint {
    #[serde(rename = "Type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) source: String,
    pub(crate) destination: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct NetworkSettings {
    #[serde(default)]
    pub(crate) networks: BTreeMap<String, Endpoint>,
    #[serde(default)]
    pub(crate) ports: Option<BTreeMap<String, Option<Vec<Binding>>>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Endpoint {
    #[serde(default, rename = "IPAddress")]
    pub(crate) address: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Binding {
    #[serde(default)]
    pub(crate) host_ip: String,
    #[serde(default)]
    pub(crate) host_port: String,
}

impl Container {
    /// Without the slash that the engine puts before it.
    pub(crate) fn plain_name(&self) -> &str {
        self.name.trim_start_matches('/')
    }

    pub(crate) fn service(&self) -> &str {
        self.label("com.docker.compose.service")
    }

    pub(crate) fn label(&self, name: &str) -> &str {
        self.config.labels.as_ref().and_then(|labels| labels.get(name)).map_or("", String::as_str)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state.status == "running"
    }

    pub(crate) fn health(&self) -> &str {
        self.state.health.as_ref().map_or("", |health| health.status.as_str())
    }

    /// The address on a network of the stack, as seen from the host.
    pub(crate) fn address(&self) -> Option<&str> {
        self.network_settings
            .networks
            .values()
            .map(|one| one.address.as_str())
            .find(|address| !address.is_empty())
    }

    /// Where a TCP port was published on the host.
    pub(crate) fn published(&self, port: u16) -> Option<String> {
        let bindings = self.network_settings.ports.as_ref()?.get(&format!("{port}/tcp"))?.as_ref()?;
        let binding = bindings.iter().find(|binding| !binding.host_port.is_empty())?;
        let ip = if binding.host_ip.is_empty() { "127.0.0.1" } else { &binding.host_ip };
        Some(format!("{ip}:{}", binding.host_port))
    }
}

/// Everything at once. The exit code is 9 when the engine does not answer.
const CONTAINERS: &str = r#"
i=$(docker ps -aq --no-trunc --filter "label=dev.sandboxer.stack=$1") || exit 9
[ -n "$i" ] || { echo '[]'; exit 0; }
docker inspect --type container $i
"#;

/// The containers of a stack, in the order of their names.
pub(crate) async fn containers(site: &Site, tag: &str) -> Result<Vec<Container>> {
    let output = site.script(CONTAINERS, &[tag]).await?;
    if output.outcome.exit_code == 9 {
        return Err(crate::site::engine_down(site.remote.name(), &output.last_words()));
    }
    let mut all: Vec<Container> = serde_json::from_slice(&output.stdout).map_err(|source| {
        let words = output.last_words();
        Error::new(
            ErrorKind::BackendFailed,
            format!("the engine's answer about {tag} cannot be read: {words}"),
        )
        .with_source(source)
    })?;
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Network {
    #[serde(rename = "Id")]
    pub(crate) id: String,
    #[serde(rename = "Name")]
    pub(crate) name: String,
    #[serde(default, rename = "Internal")]
    pub(crate) internal: bool,
}

/// What the engine and the host say about the boundary around a stack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    pub(crate) networks: Vec<Network>,
    /// `name=seccomp,profile=default`, `name=apparmor`, `name=userns` …
    pub(crate) security: Vec<String>,
    /// The filter rules of the host, where they may be read.
    pub(crate) rules: Option<String>,
}

const SURROUNDINGS: &str = r#"
i=$(docker network ls -q --no-trunc --filter "label=dev.sandboxer.stack=$1") || exit 9
if [ -n "$i" ]; then docker network inspect --format '{{json .}}' $i; fi
echo ---
docker info --format '{{json .SecurityOptions}}'
echo ---
PATH=$PATH:/usr/sbin:/sbin
{ iptables -S || nft list ruleset; } 2>/dev/null | grep -E 'br-[0-9a-f]{12}' | head -n 2000
"#;

pub(crate) async fn surroundings(site: &Site, tag: &str) -> Result<Surroundings> {
    let output = site.script(SURROUNDINGS, &[tag]).await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut parts = text.split("---\n");
    let networks =
        parts.next().unwrap_or_default().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let security = parts.next().and_then(|line| serde_json::from_str(line.trim()).ok()).unwrap_or_default();
    let rules = parts.next().map(str::trim).filter(|rules| !rules.is_empty()).map(str::to_owned);
    Ok(Surroundings { networks, security, rules })
}

/// `docker stats` takes a second to measure processors, which nobody asked for: only what is read at once is shown.
const STATS: &str = r#"
i=$(docker ps -q --filter "label=dev.sandboxer.stack=$1") || exit 9
[ -z "$i" ] || docker stats --no-stream --format '{{.MemUsage}}|{{.PIDs}}' $i
"#;

/// Memory and processes of all containers together; `None` where the engine does not say.
pub(crate) async fn usage(site: &Site, tag: &str) -> Result<Option<sandboxer_core::extension::Usage>> {
    let output = site.script(STATS, &[tag]).await?;
    let (mut memory, mut pids, mut any) = (0, 0, false);
    for line in output.text().lines() {
        let Some((usage, count)) = line.split_once('|') else { continue };
        let used = usage.split('/').next().unwrap_or_default().trim();
        if let (Some(bytes), Ok(count)) = (size(used), count.trim().parse::<u64>()) {
            (memory, pids, any) = (memory + bytes, pids + count, true);
        }
    }
    Ok(any.then(|| crate::backend::usage_of(memory, pids)))
}

/// `1.5MiB` as the engine writes it.
fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "B" => 1.0,
        "KiB" => 1_024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        _ => return None,
    };
    let number: f64 = digits.parse().ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an amount of memory, never negative"
    )]
    Some((number * factor) as u64)
}

const PAUSE: &str = r#"
i=$(docker ps -q --filter "label=dev.sandboxer.stack=$1" --filter "status=$2") || exit 9
[ -n "$(docker ps -q --filter "label=dev.sandboxer.stack=$1")" ] || exit 44
[ -z "$i" ] || docker "$3" $i
"#;

/// Pauses or resumes every container of the stack.
pub(crate) async fn set_paused(site: &Site, tag: &str, paused: bool) -> Result<()> {
    let (status, verb) = if paused { ("running", "pause") } else { ("paused", "unpause") };
    let output = site.script(PAUSE, &[tag, status, verb]).await?;
    match output.outcome.exit_code {
        0 => Ok(()),
        9 => Err(crate::site::engine_down(site.remote.name(), &output.last_words())),
        44 => Err(Error::new(ErrorKind::SandboxNotFound, format!("{tag} is gone"))),
        _ => Err(sandboxer_remote::failure::of(if paused { "pausing" } else { "resuming" }, &output)),
    }
}
