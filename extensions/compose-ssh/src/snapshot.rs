//! Snapshots: the bundle's folder and the named volumes, copied while everything inside stands still.
//!
//! Volumes go through the engine (`docker cp`), which needs neither root on the host nor a program in the image.

use std::collections::BTreeMap;
use std::time::Duration;

use sandboxer_core::extension::{CleanupReport, Handle, Leftover};
use sandboxer_core::snapshot::Taken;
use sandboxer_core::{Error, ErrorKind, Result, SnapshotId};
use sandboxer_remote::{Command, failure};

use crate::inspect::{Container, containers};
use crate::judge::{Source, Stack};
use crate::provision::{Kept, internal};
use crate::site::{ANSWER, Site};

const LIMIT: Duration = Duration::from_secs(900);

/// `$1` the sandbox's folder, `$2` the snapshot's, `$3` its staging, then for each volume: a number, a container, a path.
/// Containers that were running are paused meanwhile, and go on whatever happens.
const TAKE: &str = r#"
folder=$1; target=$2; staging=$3; tag=$4; shift 4
[ -f "$target/taken.json" ] && exit 0
umask 077
mkdir -p -- "${staging%/*}" && rm -rf -- "$staging" "$target" && mkdir -- "$staging" || exit 1
running=$(docker ps -q --filter "label=dev.sandboxer.stack=$tag" --filter status=running) || exit 9
resume() { [ -z "$running" ] || docker unpause $running >/dev/null 2>&1; }
trap 'resume' EXIT
trap 'exit 1' HUP INT TERM
[ -z "$running" ] || docker pause $running >/dev/null || exit 1
tar -c -f "$staging/project.tar" -C "$folder" project || exit 1
while [ $# -gt 2 ]; do
  docker cp "$2:$3/." - > "$staging/volume-$1.tar" || exit 1
  shift 3
done
du -sk "$staging" | cut -f1
"#;

/// `$1` staging, `$2` the snapshot's folder, `$3` what is to be remembered of it.
const PUBLISH: &str = r#"
[ -f "$2/taken.json" ] || { printf '%s' "$3" > "$1/taken.json" && mv -- "$1" "$2"; } || exit 1
cat "$2/taken.json"
"#;

/// `$1` the snapshot's folder, then for each volume: a number, a container, a path.
const FILL: &str = r#"
from=$1; shift
while [ $# -gt 2 ]; do
  if [ -f "$from/volume-$1.tar" ]; then docker cp -a - "$2:$3" < "$from/volume-$1.tar" || exit 1; fi
  shift 3
done
"#;

const DELETE: &str = r#"
cd "$1" || exit 0
for d in "$2" ".staging-$2" ".gone-$2"; do
  [ -e "$d" ] || continue
  echo "had directory $1/$d"
  # Half a snapshot must never look like a whole one.
  mv -- "$d" ".gone-$2" 2>/dev/null || [ "$d" = ".gone-$2" ] || rm -f -- "$d/taken.json"
  rm -rf -- ".gone-$2" "$d" || echo "has directory $1/$d"
done
"#;

/// Each named volume of the stack with a container that has it, and where.
fn places<'a>(stack: &'a Stack, all: &'a [Container]) -> BTreeMap<&'a str, (&'a str, &'a str)> {
    let mut out = BTreeMap::new();
    for service in &stack.services {
        for mount in &service.mounts {
            let Source::Volume(volume) = &mount.source else { continue };
            let external = stack.volumes.get(volume).is_some_and(|config| config.contains_key("external"));
            let container = all.iter().find(|one| {
                one.service() == service.name
                    && one.mounts.iter().any(|there| {
                        there.kind == "volume"
                            && there.name.is_some()
                            && there.destination == mount.target.trim_end_matches('/')
                    })
            });
            if let Some(container) = container
                && !external
            {
                out.entry(volume.as_str())
                    .or_insert((container.plain_name(), mount.target.trim_end_matches('/')));
            }
        }
    }
    out
}

/// The arguments that tell a script of the volumes; their number is that of the stack's own order.
fn volume_args(stack: &Stack, all: &[Container]) -> Vec<String> {
    let places = places(stack, all);
    let numbered = stack.volumes.keys().enumerate();
    numbered
        .filter_map(|(number, name)| {
            let (container, path) = places.get(name.as_str())?;
            Some([number.to_string(), (*container).to_owned(), (*path).to_owned()])
        })
        .flatten()
        .collect()
}

/// Takes a snapshot. A second one with the same id gives the first one's answer.
pub(crate) async fn take(site: &Site, handle: &Handle, id: SnapshotId) -> Result<Taken> {
    let name = id.to_string();
    let _lock = site.lock(&name).await?;
    let (folder, target) = (site.folder(&handle.tag), site.snapshot_folder(&name));
    let staging = format!("{}/snapshots/.staging-{name}", site.base);
    let kept = kept(site, &folder, &handle.tag).await?;
    let all = containers(site, &handle.tag).await?;
    let mut args = vec![folder, target.clone(), staging.clone(), handle.tag.clone()];
    args.extend(volume_args(&kept.stack, &all));
    let command = site.with_engine(Command::script(TAKE, args)).timeout(LIMIT);
    let output = site.remote.output(command, ANSWER).await?;
    match output.outcome.exit_code {
        0 => {}
        9 => return Err(crate::site::engine_down(site.remote.name(), &output.last_words())),
        _ => return Err(failure::of("taking the snapshot", &output)),
    }
    let kilobytes: Option<u64> = output.text().parse().ok();
    let data =
        serde_json::to_value(&kept).map_err(|source| internal("a snapshot cannot be written", source))?;
    let taken = Taken { snapshot_id: id, size_bytes: kilobytes.map(|size| size * 1_024), data };
    let text =
        serde_json::to_string(&taken).map_err(|source| internal("a snapshot cannot be written", source))?;
    let output =
        site.remote.check("keeping the snapshot", Command::script(PUBLISH, [staging, target, text])).await?;
    serde_json::from_slice(&output.stdout).map_err(|source| {
        Error::new(ErrorKind::BackendFailed, format!("the snapshot {id} cannot be read back"))
            .with_source(source)
    })
}

async fn kept(site: &Site, folder: &str, tag: &str) -> Result<Kept> {
    let output = site.script("cat \"$1/stack.json\"", &[folder]).await?;
    if !output.success() {
        return Err(Error::new(ErrorKind::SandboxNotFound, format!("{tag} is gone")));
    }
    serde_json::from_slice(&output.stdout).map_err(|source| {
        Error::new(ErrorKind::BackendFailed, format!("the folder of {tag} is damaged")).with_source(source)
    })
}

/// Fills the volumes of a stack whose containers are made and not started.
pub(crate) async fn fill(site: &Site, tag: &str, from: &Taken, stack: &Stack) -> Result<()> {
    let all = containers(site, tag).await?;
    let mut args = vec![site.snapshot_folder(&from.snapshot_id.to_string())];
    args.extend(volume_args(stack, &all));
    let command = site.with_engine(Command::script(FILL, args)).timeout(LIMIT);
    site.remote.check("filling the volumes", command).await.map(drop)
}

pub(crate) async fn delete(site: &Site, id: SnapshotId) -> Result<CleanupReport> {
    let name = id.to_string();
    let _lock = site.lock(&name).await?;
    let folder = format!("{}/snapshots", site.base);
    let output = site
        .remote
        .check("removing the snapshot", Command::script(DELETE, [folder, name]).timeout(LIMIT))
        .await?;
    let mut report = CleanupReport::default();
    for line in output.text().lines() {
        match line.split_once(' ') {
            Some(("had", what)) => report.removed.push(what.to_owned()),
            Some(("has", what)) => {
                report.removed.retain(|had| had != what);
                report.left.push(Leftover { what: what.to_owned(), reason: "it cannot be removed".into() });
            }
            _ => {}
        }
    }
    Ok(report)
}
