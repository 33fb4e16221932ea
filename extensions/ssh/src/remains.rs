//! What is on a host under our tags, and how it goes.

use std::collections::BTreeMap;

use sandboxer_core::extension::{CleanupReport, Found};
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::{Command, Remote, failure};

use crate::config::Settings;
use crate::native;
use crate::sandbox::{MARKER, check_tag};

/// Goes to the root in `$1`; knows whether the guard of a directory runs.
macro_rules! root {
    ($body:literal) => {
        concat!(
            r#"
r=$1; case $r in "~/"*) r=$HOME/${r#"~/"};; esac
cd -P -- "$r" 2>/dev/null || exit 0
guarded() {
  p= s=; { read -r p s <"$1/.guard/pid"; } 2>/dev/null; [ "$p" ] || return 1
  { IFS= read -r x <"/proc/$p/stat"; } 2>/dev/null || return 1
  set -- ${x##*) }; [ "$1" != Z ] && [ "${20}" = "$s" ]
}
"#,
            $body
        )
    };
}

/// One line for each folder: `alive`, `dead` or `native` (its own runtime knows), and its path. A sandbox whose guard went with the machine's last boot
/// lives until its deadline all the same.
const LIST: &str = root!(
    r#"
now=$(date +%s)
for d in "$2"*; do
  [ -d "./$d" ] || continue
  a=dead
  case $d in
    *.staging.*) ;;
    *) if [ -e "./$d/native" ]; then a=native
       elif guarded "./$d"; then a=alive
       elif { read -r end <"./$d/.guard/deadline"; } 2>/dev/null && [ "$end" -gt "$now" ]; then a=alive; fi;;
  esac
  printf '%s %s\n' $a "$PWD/$d"
done
[ -d "$HOME/.sandboxer/native" ] && printf 'runtime %s\n' "$HOME/.sandboxer/native"
exit 0
"#
);

/// Ends the guards of the tag `$2`, then its processes (`$3` is their mark), then removes its folders; says what it
/// removed and what it could not.
const TEARDOWN: &str = root!(
    r#"
for d in "./$2" "./$2".staging.*; do
  n=0; while guarded "$d"; do kill -TERM "$p" 2>/dev/null; n=$((n+1)); [ $n -gt 200 ] && break; sleep 0.02 2>/dev/null || sleep 1; done
done
n=0; z=0
while [ $n -lt 100 ] && [ $z -lt 2 ]; do
  n=$((n+1)); f=
  for d in $(grep -lsF -- "$3" /proc/[0-9]*/environ); do d=${d#/proc/}; f="$f ${d%/environ}"; done
  if [ "$f" ]; then z=0; kill -KILL $f 2>/dev/null; else z=$((z+1)); fi
  [ $z -ge 2 ] || sleep 0.02 2>/dev/null || sleep 1
done
[ $z -ge 2 ] || printf 'left processes %s: they do not end\n' "$f"
for d in "$2" "$2".staging.*; do
  [ -e "./$d" ] || continue
  if rm -rf -- "./$d" 2>/dev/null || { chmod -R u+rwX -- "./$d" 2>/dev/null; w=$(rm -rf -- "./$d" 2>&1); }; then printf 'removed directory %s\n' "$PWD/$d"
  else printf 'left directory %s: %s\n' "$PWD/$d" "$(printf %s "$w" | tr '\n' ' ')"; fi
done
"#
);

const LIMIT: usize = 8 << 20;

pub(crate) async fn list(settings: &Settings, remote: &Remote, prefix: &str) -> Result<Vec<Found>> {
    // A prefix that is no start of a tag finds nothing; it must not be a pattern either.
    if check_tag(prefix).is_err() {
        return Ok(Vec::new());
    }
    let output = remote.output(Command::script(LIST, [settings.root.as_str(), prefix]), LIMIT).await?;
    if !output.success() || output.truncated {
        return Err(failure::of("listing the sandboxes", &output));
    }
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    let (mut natives, mut runtime) = (Vec::new(), false);
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some((alive, path)) = line.split_once(' ') else { continue };
        if alive == "runtime" {
            runtime = true;
            continue;
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        let tag = name.split('.').next().unwrap_or_default();
        let entry = found.entry(tag.to_owned()).or_insert_with(|| Found {
            tag: tag.to_owned(),
            alive: false,
            parts: Vec::new(),
        });
        entry.alive |= alive == "alive";
        if alive == "native" {
            natives.push(tag.to_owned());
        }
        entry.parts.push(format!("directory {path}"));
    }
    if runtime {
        native::list(settings, remote, prefix, &natives, &mut found).await?;
    }
    Ok(found.into_values().collect())
}

pub(crate) async fn teardown(settings: &Settings, remote: &Remote, tag: &str) -> Result<CleanupReport> {
    check_tag(tag)?;
    let mut report = native::teardown(settings, remote, tag, true).await?;
    if !report.is_clean() {
        // Its directory stays, so that it is found again.
        return Ok(report);
    }
    let mark = format!("{MARKER}={tag}");
    let output =
        remote.output(Command::script(TEARDOWN, [settings.root.as_str(), tag, &mark]), LIMIT).await?;
    if !output.success() {
        return Err(Error::new(ErrorKind::CleanupFailed, format!("{tag} could not be removed"))
            .with_source(failure::of("the teardown", &output)));
    }
    let plain = native::report(&output.stdout);
    report.removed.extend(plain.removed);
    report.left.extend(plain.left);
    Ok(report)
}
