//! Judging a compose file: what may run as it is written, what is changed, and what is refused with its line.
//!
//! The rule is a list of what is known to be harmless. A key that is not on it is an error, because compose files gain
//! keys faster than lists of dangers do.

mod build;
mod env;
mod keys;
mod mounts;
mod network;
mod ports;
mod service;
mod top;

use std::collections::{BTreeMap, BTreeSet};

use sandboxer_core::profile::Danger;
use sandboxer_core::suggest::printable;
use sandboxer_core::{ErrorKind, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::bundle::Bundle;
use crate::file::node::{Node, Place};

/// What a compose file comes down to once it has been judged. Paths in it are relative to the bundle.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Stack {
    /// In the order of the file.
    pub(crate) services: Vec<Service>,
    pub(crate) networks: BTreeMap<String, Map<String, Json>>,
    pub(crate) volumes: BTreeMap<String, Map<String, Json>>,
    /// Name and file in the bundle.
    pub(crate) secrets: BTreeMap<String, Source>,
    pub(crate) configs: BTreeMap<String, Source>,
    /// Refusals that the profile lifted.
    pub(crate) lifted: Vec<Lifted>,
    /// What was changed, for people.
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Service {
    pub(crate) name: String,
    /// Keys that go into our file as they are.
    pub(crate) config: Map<String, Json>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) ports: Vec<Port>,
    pub(crate) env_files: Vec<String>,
    pub(crate) build: Option<Build>,
    pub(crate) wants: Wants,
    pub(crate) replicas: u64,
    /// Compose starts it only when its profile is asked for, which we never do.
    pub(crate) optional: bool,
    /// It brings its own network mode, and takes part in no network of the stack.
    pub(crate) own_network_mode: Option<String>,
}

/// Limits that the file itself asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Wants {
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) cpus: Option<f64>,
    pub(crate) pids: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Build {
    /// A folder of the bundle.
    pub(crate) context: String,
    pub(crate) config: Map<String, Json>,
}

/// One published port, by its number inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Port {
    pub(crate) number: u16,
    pub(crate) udp: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mount {
    pub(crate) source: Source,
    pub(crate) target: String,
    pub(crate) read_only: bool,
    /// Further keys of the long form.
    pub(crate) rest: Map<String, Json>,
}

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    /// A path of the bundle; `missing` when a folder has to be made there.
    Bundle {
        path: String,
        missing: bool,
    },
    /// A path of the host, let through by the profile.
    Host(String),
    Volume(String),
    /// A volume without a name.
    Anonymous,
    Tmpfs,
}

/// One refusal that the profile lifted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lifted {
    pub(crate) danger: Danger,
    pub(crate) place: String,
    pub(crate) what: String,
}

/// Judges the compose file at `path` of the bundle.
pub(crate) fn judge(
    bundle: &Bundle,
    path: &str,
    variables: &BTreeMap<String, String>,
    allowed: &[Danger],
) -> Result<Stack> {
    let variables = crate::file::variables(bundle, path, variables)?;
    let mut unset = BTreeSet::new();
    let root = crate::file::load(bundle, path, &variables, &mut unset)?;
    let mut judge =
        Judge { bundle, variables: &variables, allowed, refused: Vec::new(), stack: Stack::default() };
    judge.root(&root, &mut unset)?;
    if !unset.is_empty() {
        let names: Vec<String> = unset.iter().map(|name| printable(name)).collect();
        judge.note(format!("not set, so empty: {}", names.join(", ")));
    }
    judge.finish()
}

struct Refusal {
    place: Place,
    what: String,
    danger: Option<Danger>,
}

pub(crate) struct Judge<'a> {
    bundle: &'a Bundle,
    variables: &'a BTreeMap<String, String>,
    allowed: &'a [Danger],
    refused: Vec<Refusal>,
    stack: Stack,
}

impl Judge<'_> {
    /// Whether the profile lets this through; otherwise it is refused with its line.
    fn ask(&mut self, place: &Place, danger: Danger, what: impl Into<String>) -> bool {
        let what = what.into();
        if self.allowed.contains(&danger) {
            self.stack.lifted.push(Lifted { danger, place: place.to_string(), what });
            return true;
        }
        self.refused.push(Refusal { place: place.clone(), what, danger: Some(danger) });
        false
    }

    /// No key of a profile lets this through.
    fn refuse(&mut self, place: &Place, what: impl Into<String>) {
        self.refused.push(Refusal { place: place.clone(), what: what.into(), danger: None });
    }

    fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if self.stack.notes.len() < 50 && !self.stack.notes.contains(&note) {
            self.stack.notes.push(note);
        }
    }

    fn finish(self) -> Result<Stack> {
        let Some(first) = self.refused.first() else { return Ok(self.stack) };
        let listed: Vec<String> =
            self.refused.iter().take(20).map(|one| format!("{}: {}", one.place, one.what)).collect();
        let mut words: Vec<&str> = self.refused.iter().filter_map(|one| one.danger).map(word).collect();
        words.sort_unstable();
        words.dedup();
        let error = sandboxer_core::Error::new(ErrorKind::Refused, listed.join("; "))
            .with_context("file", first.place.file.as_ref())
            .with_context("line", first.place.line.to_string());
        Err(if words.is_empty() {
            error.with_hint("take it out of the compose file")
        } else {
            error.with_hint(format!(
                "take it out of the compose file, or let a profile of your own say `dangerously_allow: [{}]`",
                words.join(", ")
            ))
        })
    }
}

/// The word of a profile that lifts a refusal.
pub(crate) fn word(danger: Danger) -> &'static str {
    Danger::ALL.iter().find(|(_, one)| *one == danger).map_or("", |(word, _)| word)
}

/// A mapping whose every key must be known.
fn unknown(entry: &crate::file::node::Entry, what: &str, known: &[&str]) -> sandboxer_core::Error {
    let error =
        entry.place.invalid(format!("`{}` is no key of {what} that is known here", printable(&entry.key)));
    match sandboxer_core::suggest::did_you_mean(&entry.key, known.iter().copied()) {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// A node as an unsigned number, also when it is written as text.
fn number(node: &Node, what: &str) -> Result<u64> {
    let text = node.scalar(what)?;
    text.trim()
        .parse()
        .map_err(|_| node.place.invalid(format!("{what} must be a whole number, not `{}`", printable(&text))))
}

#[cfg(test)]
mod tests;
