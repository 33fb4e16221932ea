//! The types of events that there are, for whoever asks for some of them.

use std::collections::BTreeSet;

use sandboxer_core::suggest::{nearest, printable};
use sandboxer_core::{Error, ErrorKind, Result, State};
use sandboxer_store::EventPattern;

/// Beside `sandbox.` and each state. A test holds them against the code.
const FACTS: &[&str] = &[
    "credits.held",
    "credits.settled",
    "meter.recorded",
    "sandbox.adopted",
    "sandbox.hedge_won",
    "sandbox.hedged",
    "sandbox.progress",
    "sandbox.rerouted",
    "sandbox.ttl_extended",
    "sandbox.workspace_conflict",
    "sandbox.workspace_not_synced",
    "snapshot.created",
    "snapshot.deleted",
];

/// Every type, without what all of them start with.
fn known() -> BTreeSet<String> {
    let states = State::ALL.into_iter().map(|state| format!("sandbox.{state}"));
    states.chain(FACTS.iter().map(|&name| name.to_owned())).collect()
}

/// Refuses a pattern that no event can match: it would be silence without a reason.
pub(super) fn check(pattern: &EventPattern) -> Result<()> {
    let known = known();
    if known.iter().any(|kind| pattern.matches(kind)) {
        return Ok(());
    }
    let text = pattern.as_str();
    let group = |kind: &str| kind.split_once('.').map_or(kind, |(group, _)| group).to_owned();
    let groups: BTreeSet<String> = known.iter().map(|kind| format!("{}.*", group(kind))).collect();
    let is_own = |kind: &&str| text.contains('.') && group(kind) == group(text);
    let own: Vec<&str> = known.iter().map(String::as_str).filter(is_own).collect();
    let near = if own.is_empty() {
        nearest(text, groups.iter().chain(&known).map(String::as_str))
    } else {
        // By what is behind the group, since all of them begin alike.
        let tail = |kind: &str| kind.split_once('.').map_or("", |(_, tail)| tail).to_owned();
        let tails: Vec<String> = own.iter().map(|kind| tail(kind)).collect();
        let found = nearest(&tail(text), tails.iter().map(String::as_str)).map(str::to_owned);
        found.and_then(|found| own.iter().copied().find(|kind| tail(kind) == found))
    };
    let hint = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None if own.is_empty() => {
            format!("there are `*`, {}", groups.into_iter().collect::<Vec<_>>().join(", "))
        }
        None => format!("there are {}.*, {}", group(text), own.join(", ")),
    };
    Err(Error::new(ErrorKind::InvalidInput, format!("no event is a `{}`", printable(text))).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn tried(text: &str) -> Result<()> {
        check(&text.parse().unwrap())
    }

    #[test]
    fn a_pattern_that_nothing_matches_is_refused_with_what_may_be_meant() {
        for text in [
            "*",
            "sandbox.*",
            "meter.*",
            "credits.*",
            "snapshot.*",
            "sandbox.ready",
            "credits.held",
            "dev.sandboxer.sandbox.ready",
            "dev.sandboxer.meter.*",
        ] {
            tried(text).unwrap();
        }
        for (text, hint) in [
            ("sandbx.*", "`sandbox.*`?"),
            ("sandbox", "`sandbox.*`?"),
            ("sandbox.raedy", "`sandbox.ready`?"),
            ("sandbox.nope", "sandbox.destroyed"),
            ("credit.held", "`credits.held`?"),
            ("kubernetes.*", "snapshot.*"),
            ("sandbox.ready.*", "`sandbox.ready`?"),
        ] {
            let error = tried(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
            assert!(error.hint().unwrap_or_default().contains(hint), "{text}: {:?}", error.hint());
        }
    }

    /// The literal that follows, if one does.
    fn literal(rest: &str) -> Option<&str> {
        rest.trim_start().strip_prefix('"')?.split('"').next()
    }

    fn told_in(folder: &Path, told: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                told_in(&entry, told);
            } else {
                let text = std::fs::read_to_string(&entry).unwrap();
                // Tests invent some.
                let text = text.split("#[cfg(test)]").next().unwrap();
                for call in ["NewEvent::fact(", ".tell(id, "] {
                    told.extend(text.split(call).skip(1).filter_map(literal).map(str::to_owned));
                }
            }
        }
    }

    #[test]
    fn what_the_engine_tells_is_what_is_known() {
        let mut told = BTreeSet::new();
        told_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut told);
        assert_eq!(told, FACTS.iter().map(|&name| name.to_owned()).collect());
    }
}
