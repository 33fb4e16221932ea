//! The three-way comparison: what both sides last agreed on, what each has now, and what follows from it.
//!
//! A side that did not change since the agreement takes over what the other has. Where both changed, neither is touched.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use serde::{Deserialize, Serialize};

use crate::manifest::{Entry, Kind, Manifest};

/// What brings both sides together. Creations are ordered folders first, deletions folders last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub upload: Vec<String>,
    pub download: Vec<String>,
    pub delete_local: Vec<String>,
    pub delete_remote: Vec<String>,
    /// Both sides changed. What is below one of these is left alone, too.
    pub conflicts: Vec<Conflict>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    pub path: String,
    pub local: Change,
    pub remote: Change,
}

/// What a side did since the agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    Unchanged,
    Added,
    Modified,
    Deleted,
}

impl Change {
    fn of(before: Option<&Entry>, now: Option<&Entry>) -> Self {
        match (before, now) {
            (None, Some(_)) => Self::Added,
            (Some(_), None) => Self::Deleted,
            (before, now) if before == now => Self::Unchanged,
            _ => Self::Modified,
        }
    }
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.changes() == 0 && self.conflicts.is_empty()
    }

    /// How many things it would do.
    pub fn changes(&self) -> usize {
        self.upload.len() + self.download.len() + self.delete_local.len() + self.delete_remote.len()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Decision {
    Same,
    /// The sandbox takes over what is here.
    Up,
    /// We take over what is in the sandbox.
    Down,
    Conflict,
    /// Below a conflict.
    Held,
}

struct Sides<'a> {
    base: &'a Manifest,
    local: &'a Manifest,
    remote: &'a Manifest,
}

impl<'a> Sides<'a> {
    /// The side that gives and the side that takes.
    fn of(&self, decision: Decision, path: &str) -> (Option<&'a Entry>, Option<&'a Entry>) {
        let (local, remote) = (self.local.get(path), self.remote.get(path));
        if decision == Decision::Up { (local, remote) } else { (remote, local) }
    }

    fn decide(&self, path: &str) -> Decision {
        let (base, local, remote) = (self.base.get(path), self.local.get(path), self.remote.get(path));
        if local == remote {
            Decision::Same
        } else if local == base {
            Decision::Down
        } else if remote == base {
            Decision::Up
        } else {
            Decision::Conflict
        }
    }
}

type Decisions<'a> = BTreeMap<&'a str, Decision>;

/// Compares the three. Pure: nothing is touched.
pub fn plan(base: &Manifest, local: &Manifest, remote: &Manifest) -> Plan {
    let sides = Sides { base, local, remote };
    let paths: BTreeSet<&str> =
        [base, local, remote].iter().flat_map(|side| side.0.keys().map(String::as_str)).collect();
    let mut decisions: Decisions<'_> = paths.iter().map(|path| (*path, sides.decide(path))).collect();
    hold_below_clashes(&sides, &paths, &mut decisions);
    keep_folders_in_use(&sides, &paths, &mut decisions);
    list(&sides, &decisions)
}

/// A folder on one side that is something else on the other: either everything in it may go, or nothing is touched.
fn hold_below_clashes<'a>(sides: &Sides<'_>, paths: &BTreeSet<&'a str>, decisions: &mut Decisions<'a>) {
    for path in paths {
        let decision = decisions[path];
        let (gives, takes) = sides.of(decision, path);
        let clash = match decision {
            Decision::Conflict => is_dir(gives) || is_dir(takes),
            Decision::Up | Decision::Down => {
                gives.is_some_and(|entry| entry.kind != Kind::Dir)
                    && is_dir(takes)
                    && below(paths, path).any(|inner| {
                        let (gives, takes) = sides.of(decision, inner);
                        gives.is_some() || (takes.is_some() && takes != sides.base.get(inner))
                    })
            }
            Decision::Same | Decision::Held => false,
        };
        if !clash {
            continue;
        }
        decisions.insert(path, Decision::Conflict);
        let inner: Vec<&str> = below(paths, path).collect();
        for inner in inner {
            decisions.insert(inner, Decision::Held);
        }
    }
}

/// A folder that one side deleted and in which something stays or arrives is made again instead.
fn keep_folders_in_use<'a>(sides: &Sides<'_>, paths: &BTreeSet<&'a str>, decisions: &mut Decisions<'a>) {
    for path in paths.iter().rev() {
        let decision = decisions[path];
        if !matches!(decision, Decision::Up | Decision::Down) {
            continue;
        }
        let (gives, takes) = sides.of(decision, path);
        if gives.is_some() || !is_dir(takes) {
            continue;
        }
        let in_use = below(paths, path).any(|inner| match decisions[inner] {
            inner_decision @ (Decision::Up | Decision::Down) => sides.of(inner_decision, inner).0.is_some(),
            Decision::Same => sides.local.get(inner).is_some(),
            Decision::Conflict | Decision::Held => true,
        });
        if in_use {
            let flipped = if decision == Decision::Up { Decision::Down } else { Decision::Up };
            decisions.insert(path, flipped);
        }
    }
}

fn list(sides: &Sides<'_>, decisions: &Decisions<'_>) -> Plan {
    let mut plan = Plan::default();
    for (path, decision) in decisions {
        let there = sides.of(*decision, path).0.is_some();
        let into = match (decision, there) {
            (Decision::Up, true) => &mut plan.upload,
            (Decision::Up, false) => &mut plan.delete_remote,
            (Decision::Down, true) => &mut plan.download,
            (Decision::Down, false) => &mut plan.delete_local,
            (Decision::Conflict, _) => {
                let base = sides.base.get(path);
                plan.conflicts.push(Conflict {
                    path: (*path).to_owned(),
                    local: Change::of(base, sides.local.get(path)),
                    remote: Change::of(base, sides.remote.get(path)),
                });
                continue;
            }
            (Decision::Same | Decision::Held, _) => continue,
        };
        into.push((*path).to_owned());
    }
    plan.delete_local.reverse();
    plan.delete_remote.reverse();
    plan
}

fn is_dir(entry: Option<&Entry>) -> bool {
    entry.is_some_and(|entry| entry.kind == Kind::Dir)
}

/// What is inside a folder, at any depth. `0` is the character after `/`.
fn below<'a>(paths: &BTreeSet<&'a str>, folder: &str) -> std::vec::IntoIter<&'a str> {
    let (from, to) = (format!("{folder}/"), format!("{folder}0"));
    let inside = paths.range::<str, _>((Bound::Included(from.as_str()), Bound::Excluded(to.as_str())));
    inside.copied().collect::<Vec<_>>().into_iter()
}

/// The new agreement after a sync: what both have now, or what one took over from the other in between. Where neither
/// holds, the old agreement stays, so that a conflict remains one.
pub fn agreement(base: &Manifest, before: (&Manifest, &Manifest), after: (&Manifest, &Manifest)) -> Manifest {
    let paths: BTreeSet<&String> =
        [base, before.0, before.1, after.0, after.1].iter().flat_map(|side| side.0.keys()).collect();
    let mut agreed = Manifest::default();
    for path in paths {
        let (local, remote) = (after.0.get(path), after.1.get(path));
        let entry = if local == remote || remote == before.0.get(path) {
            remote
        } else if local == before.1.get(path) {
            local
        } else {
            base.get(path)
        };
        if let Some(entry) = entry {
            agreed.0.insert(path.clone(), entry.clone());
        }
    }
    agreed
}
