//! Removing everything of a tag, with or without a handle, and telling what is left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sandboxer_core::extension::{CleanupReport, Leftover};
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::{Command, Guard, quote};

use crate::site::{ANSWER, Site, alone};

/// A stop within grace, and then some, on a busy engine.
const LIMIT: Duration = Duration::from_secs(240);

/// `$1` tag, `$2` folder, `$3` staging folder. Says `had KIND NAME` for what was there, `has KIND NAME` for what still is
/// at the end, `why …` for the last error. The exit code is 9 when the engine does not answer.
pub(crate) const REMOVE: &str = alone!(
    r#"
tag=$1; dir=$2; staging=$3; why=
things() {
  command -v docker >/dev/null 2>&1 || return 0
  f="label=dev.sandboxer.stack=$tag"
  docker ps -a --no-trunc --filter "$f" --format 'container {{.Names}}' || return 9
  docker network ls --no-trunc --filter "$f" --format 'network {{.Name}}' || return 9
  docker volume ls --filter "$f" --format 'volume {{.Name}}' || return 9
  docker image ls --filter "$f" --format 'image {{if eq .Repository "<none>"}}{{.ID}}{{else}}{{.Repository}}:{{.Tag}}{{end}}' || return 9
}
list() {
  t=$(things) || { printf '%s\n' "$t"; return 9; }
  [ -z "$t" ] || printf '%s\n' "$t"
  for d in "$dir" "$staging"; do [ ! -e "$d" ] || printf 'directory %s\n' "$d"; done
}
# An engine goes on with what it was asked for last, even when whoever asked is gone.
[ -f "$dir/handle.json" ] || [ ! -e "$dir" ] || sleep 0.7 2>/dev/null || sleep 1
had=$(list 2>&1) || { printf 'why %s\n' "$had"; exit 9; }
[ -n "$had" ] || exit 0
printf '%s\n' "$had" | while IFS= read -r line; do printf 'had %s\n' "$line"; done
image=
if [ -f "$dir/compose.json" ] && [ -d "$dir/project" ]; then
  image=$(docker ps -aq --filter "label=dev.sandboxer.stack=$tag" 2>/dev/null | head -n 1)
  [ -z "$image" ] || image=$(docker inspect -f '{{.Image}}' "$image" 2>/dev/null)
  set -- -p "$tag" -f "$dir/compose.json" --project-directory "$dir/project" --env-file "$dir/empty.env" down -v --remove-orphans -t 1
  { docker compose version >/dev/null 2>&1 && docker compose "$@" || docker-compose "$@"; } >/dev/null 2>&1
fi
# In the order of the listing, nothing is in use any more when its turn comes.
list 2>/dev/null | while read -r kind name; do
  case $kind in
    container) docker unpause "$name"; docker rm -f -v "$name" ;;
    network)
      for c in $(docker network inspect -f '{{range $k, $v := .Containers}}{{$k}} {{end}}' "$name" 2>/dev/null); do
        docker network disconnect -f "$name" "$c"
      done
      docker network rm "$name" ;;
    volume) docker volume rm "$name" ;;
    image) docker image rm -f "$name" ;;
  esac >/dev/null 2>&1
done
clear() {
  [ -e "$1" ] || return 0
  rm -rf -- "$1" 2>/dev/null && return 0
  # Services write as root where we may not: one of their own images takes it away again.
  [ -n "$image" ] && docker run --rm --network none --user 0:0 --entrypoint /bin/rm -v "$1:/remove" "$image" -rf /remove/project >/dev/null 2>&1
  why=$(rm -rf -- "$1" 2>&1)
}
clear "$staging"; clear "$dir"
has=$(list 2>&1) || { printf 'why %s\n' "$has"; exit 9; }
[ -z "$has" ] || printf '%s\n' "$has" | while IFS= read -r line; do printf 'has %s\n' "$line"; done
[ -z "$why" ] || printf 'why %s\n' "$why"
exit 0
"#
);

/// The text that the guard of a sandbox runs at its deadline, also when nobody else is left. An engine that is down then
/// is asked again for an hour.
pub(crate) fn last_will(site: &Site, tag: &str) -> String {
    let mut text = format!("export SBX_LOCK={}\n", quote(&site.work_lock(tag)));
    if let Some(host) = site.docker_host() {
        text += &format!("export DOCKER_HOST={}\n", quote(host));
    }
    let (folder, staging) = (quote(&site.folder(tag)), quote(&site.staging(tag)));
    text += &format!("cd /\nremove() (\nset -- {tag} {folder} {staging}\n{REMOVE}\n)\n");
    text += "n=0; while [ $n -lt 360 ]; do n=$((n+1))\n";
    text += "out=$(remove) && case $out in *'has '*) ;; *) break;; esac\nsleep 10; done\n";
    text
}

/// Removes what the tag still has.
pub(crate) async fn remove(site: &Site, tag: &str) -> Result<CleanupReport> {
    // It would do the same at the same time, or be killed by the removal of its folder.
    Guard::new(&site.remote, site.folder(tag)).stop().await?;
    let (folder, staging) = (site.folder(tag), site.staging(tag));
    let command = site.alone(tag, Command::script(REMOVE, [tag, &folder, &staging])).timeout(LIMIT);
    let output = site.remote.output(command, ANSWER).await?;
    if output.outcome.timed_out {
        return Err(Error::new(
            ErrorKind::Timeout,
            format!("removing {tag} takes longer than {} s", LIMIT.as_secs()),
        ));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.outcome.exit_code == 9 {
        let why = text.lines().filter_map(|line| line.strip_prefix("why ")).next_back().unwrap_or_default();
        return Err(crate::site::engine_down(site.remote.name(), why));
    }
    if !output.success() {
        return Err(sandboxer_remote::failure::of(&format!("removing {tag}"), &output));
    }
    Ok(report(&text))
}

/// From what the script said.
fn report(text: &str) -> CleanupReport {
    let mut had = BTreeSet::new();
    let mut has = BTreeSet::new();
    let mut why = String::new();
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("had", what)) => drop(had.insert(what.to_owned())),
            Some(("has", what)) => drop(has.insert(what.to_owned())),
            Some(("why", reason)) => why = reason.to_owned(),
            _ => {}
        }
    }
    let reason = if why.is_empty() { "it is still there".to_owned() } else { why };
    CleanupReport {
        removed: had.difference(&has).cloned().collect(),
        left: has.into_iter().map(|what| Leftover { what, reason: reason.clone() }).collect(),
    }
}

/// `TAG|PART`, and `TAG|+` for each running container. The exit code is 9 when the engine does not answer.
const LIST: &str = r#"
cd "$1" || exit 0
for d in sbx_* .staging-*; do
  [ -d "$d" ] || continue
  printf '%s|directory %s/%s\n' "${d#.staging-}" "$1" "$d"
done
for d in snapshots/*; do
  [ -d "$d" ] || continue
  t=${d#snapshots/}; t=${t#.staging-}; t=${t#.gone-}
  printf '%s|directory %s/%s\n' "$t" "$1" "$d"
  [ ! -f "$d/taken.json" ] || [ "snapshots/$t" != "$d" ] || printf '%s|+\n' "$t"
done
command -v docker >/dev/null 2>&1 || exit 0
f=label=dev.sandboxer.stack
docker ps -a --filter $f --format '{{.Label "dev.sandboxer.stack"}}|container {{.Names}}' || exit 9
docker ps --filter $f --format '{{.Label "dev.sandboxer.stack"}}|+' || exit 9
docker network ls --filter $f --format '{{.Label "dev.sandboxer.stack"}}|network {{.Name}}' || exit 9
docker volume ls --filter $f --format '{{.Label "dev.sandboxer.stack"}}|volume {{.Name}}' || exit 9
i=$(docker image ls -q --filter $f | sort -u) || exit 9
[ -z "$i" ] || docker inspect -f '{{index .Config.Labels "dev.sandboxer.stack"}}|image {{if .RepoTags}}{{index .RepoTags 0}}{{else}}{{.Id}}{{end}}' $i 2>/dev/null
exit 0
"#;

/// Everything of ours on the host whose tag starts so.
pub(crate) async fn list(site: &Site, prefix: &str) -> Result<Vec<sandboxer_core::extension::Found>> {
    let output = site.script(LIST, &[&site.base]).await?;
    if output.outcome.exit_code == 9 {
        return Err(crate::site::engine_down(site.remote.name(), &output.last_words()));
    }
    if !output.success() {
        return Err(sandboxer_remote::failure::of("listing stacks", &output));
    }
    let mut found: BTreeMap<String, (bool, Vec<String>)> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some((tag, part)) = line.split_once('|') else { continue };
        if !tag.starts_with(prefix) || crate::site::check_tag(tag).is_err() {
            continue;
        }
        let entry = found.entry(tag.to_owned()).or_default();
        if part == "+" {
            entry.0 = true;
        } else {
            entry.1.push(part.to_owned());
        }
    }
    Ok(found
        .into_iter()
        .map(|(tag, (alive, parts))| sandboxer_core::extension::Found { tag, alive, parts })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_what_went_and_what_is_left() {
        let report = report("had container a\nhad volume b\nhas volume b\nwhy in use\n");
        assert_eq!(report.removed, ["container a"]);
        assert_eq!(report.left, [Leftover { what: "volume b".into(), reason: "in use".into() }]);
        assert_eq!(super::report(""), CleanupReport::default());
    }
}
