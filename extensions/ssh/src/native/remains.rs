//! What the hosts' own stores have under our tags, and how it goes.

use std::collections::BTreeMap;

use sandboxer_core::extension::{CleanupReport, Found, Leftover};
use sandboxer_core::sandbox::Sandbox as Record;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::{Command, Remote, failure};
use serde::Deserialize;

use super::{LABEL, sbx};
use crate::config::Settings;
use crate::sandbox::check_tag;

const LIST: &str = sbx!(
    r#"
[ -d "$h" ] && command -v sandboxer >/dev/null || exit 0
exec sandboxer --quiet --server '' --home "$h" list --json
"#
);

/// Destroys what has the tag `$2`; `$3` says whether also what is published. Without `sandboxer` nobody can. A create
/// that goes on, or that is just being killed, has the lock; whoever comes after us finds its folder gone.
const TEARDOWN: &str = sbx!(
    r#"
[ -d "$h" ] || exit 0
p=$(id_in 2>/dev/null <"$r/$2/native")
if ! command -v sandboxer >/dev/null; then
  [ "$p" ] && printf 'left sandbox %s: sandboxer is not on the host any more\n' "$p"
  exit 0
fi
if [ "$3" ] && [ -e "$r/$2.staging.lock" ]; then
  exec 9>>"$r/$2.staging.lock" && flock -w 60 9 || { echo "a create of this tag does not end" >&2; exit 50; }
fi
all=$(sbx list --json --label "sandboxer.tag=$2" 9>&-) || exit 50
for id in $(printf '%s\n' "$all" | id_in); do
  [ "$3" ] || [ "$id" != "$p" ] || continue
  if w=$(sbx destroy "$id" 2>&1 >/dev/null 9>&-); then printf 'removed sandbox %s\n' "$id"
  else printf 'left sandbox %s: %s\n' "$id" "$(printf %s "$w" | tr '\n' ' ')"; fi
done
"#
);

const LIMIT: usize = 16 << 20;

#[derive(Deserialize)]
struct Listing {
    items: Vec<Record>,
}

/// Adds what the host's runtime has to what was found as directories, and says whether that lives. A directory of a
/// sandbox that has ended there is only its remains.
pub(crate) async fn list(
    settings: &Settings,
    remote: &Remote,
    prefix: &str,
    native: &[String],
    found: &mut BTreeMap<String, Found>,
) -> Result<()> {
    let output = remote.output(Command::script(LIST, [settings.root.as_str()]), LIMIT).await?;
    if !output.success() || output.truncated {
        return Err(failure::of("listing the sandboxes of the host's runtime", &output));
    }
    for tag in native {
        if let Some(entry) = found.get_mut(tag) {
            entry.alive = false;
        }
    }
    if output.stdout.trim_ascii().is_empty() {
        return Ok(());
    }
    let listing: Listing = serde_json::from_slice(&output.stdout).map_err(|source| {
        Error::new(ErrorKind::BackendFailed, "the host's `sandboxer` answers what we do not understand")
            .with_source(source)
    })?;
    for record in listing.items {
        let Some(tag) = record.labels.get(LABEL) else { continue };
        if !tag.starts_with(prefix) || check_tag(tag).is_err() {
            continue;
        }
        let entry = found.entry(tag.clone()).or_insert_with(|| Found {
            tag: tag.clone(),
            alive: false,
            parts: Vec::new(),
        });
        // What was never published is a provision that broke off.
        entry.alive |= native.contains(tag) && super::state::lives(&record);
        entry.parts.push(format!("sandbox {}", record.sandbox_id));
    }
    Ok(())
}

/// Ends what the host's runtime has under the tag; without `published` only what a provision left half made.
pub(crate) async fn teardown(
    settings: &Settings,
    remote: &Remote,
    tag: &str,
    published: bool,
) -> Result<CleanupReport> {
    let args = [settings.root.as_str(), tag, if published { "1" } else { "" }];
    let output = remote.output(Command::script(TEARDOWN, args), LIMIT).await?;
    if !output.success() {
        return Err(Error::new(ErrorKind::CleanupFailed, format!("{tag} could not be removed"))
            .with_source(failure::of("the teardown by the host's `sandboxer`", &output)));
    }
    Ok(report(&output.stdout))
}

/// `removed WHAT` and `left WHAT: WHY`, line by line.
pub(crate) fn report(lines: &[u8]) -> CleanupReport {
    let mut report = CleanupReport::default();
    for line in String::from_utf8_lossy(lines).lines() {
        match line.split_once(' ') {
            Some(("removed", what)) => report.removed.push(what.to_owned()),
            Some(("left", what)) => {
                let (what, reason) = what.split_once(": ").unwrap_or((what, "it is still there"));
                report.left.push(Leftover { what: what.to_owned(), reason: reason.to_owned() });
            }
            _ => {}
        }
    }
    report
}
