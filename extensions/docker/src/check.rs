//! What this machine's engine is and can do, without changing anything.

use bollard::models::SystemInfo;
use bollard::query_parameters::ListContainersOptionsBuilder;
use sandboxer_core::Result;
use sandboxer_core::extension::{CheckItem, CheckReport};

use crate::client::{Client, Connected};
use crate::errors::map;

pub(crate) async fn check(client: &Client) -> Result<CheckReport> {
    let asked = match client.connect().await {
        Ok(connected) => info(connected).await,
        Err(error) => Err(error),
    };
    let info = match asked {
        Ok(info) => info,
        Err(error) => {
            let hint = error.hint().map(str::to_owned);
            let item = CheckItem {
                name: "engine".into(),
                ok: false,
                required: true,
                detail: error.chain().join(": "),
                hint,
            };
            return Ok(CheckReport { ok: false, items: vec![item] });
        }
    };
    let items = items(&info);
    Ok(CheckReport { ok: items.iter().all(|item| item.ok || !item.required), items })
}

async fn info(connected: &Connected) -> Result<SystemInfo> {
    connected.api.info().await.map_err(|error| map(error, "describe itself"))
}

fn items(info: &SystemInfo) -> Vec<CheckItem> {
    let item = |name: &str, ok: bool, required: bool, detail: String, hint: &str| CheckItem {
        name: name.into(),
        ok,
        required,
        detail,
        hint: (!ok).then(|| hint.to_owned()),
    };
    let security = info.security_options.clone().unwrap_or_default();
    let limit = |name: &str, there: Option<bool>| {
        let ok = there.unwrap_or_default();
        let detail = if ok { "enforced" } else { "the kernel or its cgroups lack it" };
        item(name, ok, false, detail.into(), "the sandbox's report will show the limit as missing")
    };
    let runtimes = runtimes(info);
    let gvisor = runtimes.iter().any(|name| name.contains("runsc"));
    vec![
        item("engine", true, true, format!("docker {}", info.server_version.as_deref().unwrap_or("?")), ""),
        item(
            "linux",
            info.os_type.as_deref() == Some("linux"),
            true,
            info.operating_system.clone().unwrap_or_default(),
            "ext.docker needs Linux containers",
        ),
        item(
            "seccomp",
            security.iter().any(|option| option.contains("seccomp")),
            true,
            security.join(", "),
            "a kernel with CONFIG_SECCOMP_FILTER, and no `seccomp-profile: unconfined` in daemon.json",
        ),
        item(
            "init",
            info.init_binary.as_deref().is_some_and(|init| !init.is_empty()),
            true,
            info.init_binary.clone().unwrap_or_default(),
            "install docker-init (the package `tini` on Debian)",
        ),
        limit("memory_limit", info.memory_limit),
        limit("pids_limit", info.pids_limit),
        limit("cpu_limit", info.cpu_cfs_quota),
        item(
            "cgroups",
            true,
            false,
            format!("driver {}, version {}", text(info.cgroup_driver), text(info.cgroup_version)),
            "",
        ),
        item("storage", true, false, info.driver.clone().unwrap_or_default(), ""),
        item("runtimes", true, false, runtimes.join(", "), ""),
        item(
            "gvisor",
            gvisor,
            false,
            if gvisor { "runsc is registered" } else { "runsc is not registered" }.into(),
            "`apt-get install runsc`, then register it in daemon.json with the argument `--network=none`",
        ),
    ]
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "unknown".into(), |value| value.to_string())
}

fn runtimes(info: &SystemInfo) -> Vec<String> {
    let mut names: Vec<String> = info.runtimes.clone().unwrap_or_default().into_keys().collect();
    names.sort();
    names
}

/// For `inspect host`: the engine, and whose containers are on it.
pub(crate) async fn facts(connected: &Connected) -> Result<serde_json::Value> {
    let info = info(connected).await?;
    let options = ListContainersOptionsBuilder::default().all(true).build();
    let listed =
        connected.api.list_containers(Some(options)).await.map_err(|error| map(error, "list containers"))?;
    let is_ours = |container: &&bollard::models::ContainerSummary| {
        container
            .labels
            .as_ref()
            .is_some_and(|labels| labels.keys().any(|name| name.starts_with("dev.sandboxer.")))
    };
    let name = |container: &bollard::models::ContainerSummary| {
        container.names.iter().flatten().next().map(|name| name.trim_start_matches('/').to_owned())
    };
    let foreign: Vec<String> =
        listed.iter().filter(|container| !is_ours(container)).filter_map(name).collect();
    Ok(serde_json::json!({
        "engines": { "docker": {
            "version": info.server_version,
            "api_version": connected.api.client_version().to_string(),
            "storage_driver": info.driver,
            "cgroup_driver": info.cgroup_driver.map(|driver| driver.to_string()),
            "cgroup_version": info.cgroup_version.map(|version| version.to_string()),
            "runtimes": runtimes(&info),
            "default_runtime": info.default_runtime,
            "security_options": info.security_options,
            "root_dir": info.docker_root_dir,
            "images": info.images,
        } },
        "foreign": { "containers": foreign, "count": foreign.len() },
    }))
}
