//! Facts about a host, for `extensions check` and `inspect host`.

use sandboxer_core::extension::{CheckItem, CheckReport};
use sandboxer_core::{ErrorKind, Result};
use serde_json::{Value, json};

use crate::config::Settings;
use crate::site::{Site, Tool};

/// Less than this and hardly any image fits.
const LEAST_DISK: u64 = 1 << 30;

const FACTS: &str = r#"
nproc 2>/dev/null || grep -c ^processor /proc/cpuinfo
sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1
cat /proc/loadavg
sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo
sed -n 's/^MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo
d=$1; while [ ! -e "$d" ]; do d=${d%/*}; d=${d:-/}; done; df -Pk "$d" | sed -n '2p'
uname -r
uname -m
docker ps -a --format '{{.Label "dev.sandboxer.stack"}}{{.Label "dev.sandboxer.tag"}}|{{.Names}}' 2>/dev/null
"#;

pub(crate) async fn check(settings: &Settings, site: &Site) -> Result<CheckReport> {
    // Asked anew each time: that something was installed is what a check is for.
    let fresh = Site::open(settings, &settings.hosts.host(site.remote.name()).await?).await?;
    let mut items = Vec::new();
    match fresh.tool().await {
        Ok(tool) => {
            items.push(item("docker", true, format!("engine {}", tool.engine), None));
            items.push(item("compose", true, format!("{} {}", tool.program().join(" "), tool.version), None));
        }
        Err(error) if matches!(error.kind(), ErrorKind::NoBackend | ErrorKind::Unreachable) => {
            let name = if error.to_string().contains("no compose") { "compose" } else { "docker" };
            items.push(item(name, false, error.chain().join(": "), error.hint().map(str::to_owned)));
        }
        Err(error) => return Err(error),
    }
    let free = disk(&fresh).await?.and_then(|(_, free)| free);
    let enough = free.is_none_or(|free| free >= LEAST_DISK);
    let hint = (!enough).then(|| "free some with `docker system prune`".to_owned());
    items.push(item("disk", enough, format!("{} MiB free", free.unwrap_or_default() >> 20), hint));
    let flock = fresh.script("command -v flock", &[]).await?;
    items.push(CheckItem {
        name: "flock".into(),
        ok: flock.success(),
        required: false,
        detail: if flock.success() {
            flock.text()
        } else {
            "not there; two creates of one sandbox may meet".into()
        },
        hint: (!flock.success()).then(|| "install util-linux".into()),
    });
    Ok(CheckReport { ok: items.iter().all(|item| item.ok || !item.required), items })
}

fn item(name: &str, ok: bool, detail: String, hint: Option<String>) -> CheckItem {
    CheckItem { name: name.into(), ok, required: true, detail, hint }
}

/// Total and available bytes of the file system with our folder.
async fn disk(site: &Site) -> Result<Option<(Option<u64>, Option<u64>)>> {
    let script = "d=$1; while [ ! -e \"$d\" ]; do d=${d%/*}; d=${d:-/}; done; df -Pk \"$d\" | sed -n '2p'";
    let output = site.script(script, &[&site.base]).await?;
    Ok(output.success().then(|| disk_line(&output.text())))
}

fn disk_line(line: &str) -> (Option<u64>, Option<u64>) {
    let field = |at| {
        line.split_whitespace().nth(at).and_then(|text: &str| text.parse::<u64>().ok()).map(|kib| kib * 1_024)
    };
    (field(1), field(3))
}

pub(crate) async fn facts(site: &Site) -> Result<Value> {
    let output = site.script(FACTS, &[&site.base]).await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let line = |at: usize| lines.get(at).copied().unwrap_or_default();
    let kib = |at: usize| line(at).trim().parse::<u64>().ok().map(|kib| kib * 1_024);
    let (total, available) = disk_line(line(5));
    let foreign: Vec<&str> = lines.iter().skip(8).filter_map(|line| line.strip_prefix('|')).collect();
    let engines = match site.tool().await {
        Ok(Tool { engine, version, plugin, .. }) => {
            json!({ "docker": { "version": engine }, "compose": { "version": version, "plugin": plugin } })
        }
        Err(error) => json!({ "docker": { "missing": error.to_string() } }),
    };
    Ok(json!({
        "cpu": {
            "count": line(0).trim().parse::<u64>().ok(),
            "model": line(1),
            "load": line(2).split_whitespace().take(3).collect::<Vec<_>>(),
        },
        "memory": { "total_bytes": kib(3), "available_bytes": kib(4) },
        "disk": { "total_bytes": total, "available_bytes": available },
        "kernel": { "release": line(6), "machine": line(7) },
        "engines": engines,
        "foreign": { "containers": foreign, "count": foreign.len() },
    }))
}
