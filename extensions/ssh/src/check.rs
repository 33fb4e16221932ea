//! What a host has and lacks, looked at without changing anything.

use sandboxer_core::extension::{CheckItem, CheckReport};
use sandboxer_core::{ErrorKind, Result};
use sandboxer_remote::{Command, Remote};
use serde_json::{Value, json};

use crate::native::Probe;

/// `key value` lines.
const FACTS: &str = r#"
for t in tar stat grep xargs readlink mv chmod date; do command -v $t >/dev/null || printf 'lacks %s\n' $t; done
printf 'kernel %s\n' "$(uname -sr)"
printf 'machine %s\n' "$(uname -m)"
printf 'hostname %s\n' "$(uname -n)"
printf 'user %s\n' "$(id -un)"
printf 'cpus %s\n' "$(grep -c ^processor /proc/cpuinfo)"
while read -r k v _; do case $k in MemTotal:) printf 'memory_kb %s\n' "$v";; MemAvailable:) printf 'memory_available_kb %s\n' "$v";; esac; done </proc/meminfo
read -r l _ </proc/loadavg; printf 'load %s\n' "$l"
df -Pk "$HOME" | while read -r _ size _ free _; do case $size in *[!0-9]*) ;; *) printf 'disk_kb %s\ndisk_free_kb %s\n' "$size" "$free";; esac; done
command -v setsid >/dev/null || printf 'without setsid\n'
p=$(command -v sandboxer) && printf 'sandboxer %s\n' "$p"
exit 0
"#;

async fn look(remote: &Remote) -> Result<Vec<(String, String)>> {
    let output = remote.check("looking at the host", Command::script(FACTS, [""; 0])).await?;
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(lines
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(key, value)| (key.into(), value.into()))
        .collect())
}

pub(crate) async fn check(remote: &Remote) -> Result<CheckReport> {
    let mut items = Vec::new();
    let mut item = |name: &str, ok: bool, required: bool, detail: String, hint: Option<String>| {
        items.push(CheckItem { name: name.into(), ok, required, detail, hint });
    };
    let facts = match look(remote).await {
        Ok(facts) => facts,
        // A host that is down is an answer, not a failure of the check.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Unreachable
                    | ErrorKind::HostKeyRefused
                    | ErrorKind::Denied
                    | ErrorKind::BackendFailed
            ) =>
        {
            item("connection", false, true, error.chain().join(": "), error.hint().map(str::to_owned));
            return Ok(CheckReport { ok: false, items });
        }
        Err(error) => return Err(error),
    };
    let all = |key: &str| {
        facts.iter().filter(|(name, _)| name == key).map(|(_, value)| value.as_str()).collect::<Vec<_>>()
    };
    let user = all("user").join("");
    item(
        "connection",
        true,
        true,
        format!("{} answers as {user} over SSH with its pinned key", remote.name()),
        None,
    );
    let lacking = all("lacks");
    let tools_hint =
        (!lacking.is_empty()).then(|| "install coreutils, tar and grep, or busybox, on the host".to_owned());
    let detail = if lacking.is_empty() {
        "everything that is needed".into()
    } else {
        format!("without {}", lacking.join(", "))
    };
    item("tools", lacking.is_empty(), true, detail, tools_hint);
    let free = all("disk_free_kb").first().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    item("disk", free > 10 << 10, true, format!("{} MiB free in the home", free >> 10), None);
    let ok = items.iter().all(|item| item.ok || !item.required);
    Ok(CheckReport { ok, items })
}

pub(crate) async fn facts(remote: &Remote) -> Result<Value> {
    let mut out = json!({ "extension": crate::ID, "host": remote.name() });
    if let Some(map) = out.as_object_mut() {
        for (key, value) in look(remote).await? {
            let value = value.parse::<u64>().map_or_else(|_| Value::from(value), Value::from);
            map.insert(key, value);
        }
    }
    Ok(out)
}

/// Which kind of sandbox the host gives. A plain one is one too, so nothing depends on it.
pub(crate) fn native(probe: &Probe) -> CheckItem {
    CheckItem {
        name: "sandboxer".into(),
        ok: probe.usable(),
        required: false,
        detail: match &probe.obstacle {
            None => "sandboxes run by the host's own native runtime, isolation `container`".into(),
            Some(obstacle) => format!("sandboxes are plain directories, isolation `network`: {obstacle}"),
        },
        hint: (!probe.usable()).then(|| "install sandboxer on the host for stronger isolation".into()),
    }
}
