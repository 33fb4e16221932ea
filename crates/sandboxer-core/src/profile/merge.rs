//! `extends`: a priority merge, base first.
//!
//! - a scalar or a list of the extending file replaces the one below it;
//! - mappings are merged key by key, `variables` among them;
//! - `null` for a value takes back what the base said, so that the default holds; a section that is `null`
//!   (all its keys commented out, say) changes nothing;
//! - `id`, `version`, `description` and `extends` are never inherited.

use super::node::{Entry, Node, Value, refuse_source};
use super::parse::ProfileFile;
use super::schema::Profile;
use super::{decode, validate};
use crate::error::Result;

/// What a file says about itself only.
const OWN: [&str; 4] = ["id", "version", "description", "extends"];
/// Mappings of the schema; everything else is replaced as a whole.
const MERGED: [&str; 15] = [
    "isolation",
    "network",
    "workspace",
    "ttl",
    "resources",
    "variables",
    "setup",
    "requires",
    "route",
    "placement",
    "docker",
    "compose",
    "packer",
    "reachability",
    "metadata",
];
const MERGED_IN_ROUTE: [&str; 2] = ["weights", "constraints"];

/// The full profile of a chain of files, base first, checked against every rule.
pub fn resolve<'a>(chain: impl IntoIterator<Item = &'a ProfileFile>) -> Result<Profile> {
    let mut chain = chain.into_iter();
    let Some(first) = chain.next() else {
        return Err(refuse_source("profile", "there is nothing to resolve"));
    };
    let merged = chain.fold(first.clone(), |base, next| merge(&base, next));
    let profile = decode::profile(&merged.root)?;
    validate::check(&profile, &merged.root, &merged.source)?;
    Ok(profile)
}

/// `over` on top of `base`, as if it had been written in one file; every part keeps its place.
pub(super) fn merge(base: &ProfileFile, over: &ProfileFile) -> ProfileFile {
    let inherited = match &base.root.value {
        Value::Map(entries) => {
            entries.iter().filter(|entry| !OWN.contains(&entry.key.as_str())).cloned().collect()
        }
        _ => Vec::new(),
    };
    let below = Node { place: over.root.place.clone(), value: Value::Map(inherited) };
    ProfileFile { root: merge_nodes(&below, &over.root, &MERGED), ..over.clone() }
}

/// `sections` are the keys at this level whose values are mappings of the schema.
fn merge_nodes(base: &Node, over: &Node, sections: &[&str]) -> Node {
    let (Value::Map(below), Value::Map(above)) = (&base.value, &over.value) else {
        return over.clone();
    };
    let mut entries: Vec<Entry> = below.clone();
    for entry in above {
        let section = sections.contains(&entry.key.as_str());
        match entries.iter_mut().find(|old| old.key == entry.key) {
            Some(_) if section && entry.node.is_null() => {}
            Some(old) if section => {
                let deeper: &[&str] = if entry.key == "route" { &MERGED_IN_ROUTE } else { &[] };
                old.node = merge_nodes(&old.node, &entry.node, deeper);
                old.place = entry.place.clone();
            }
            Some(old) => *old = entry.clone(),
            None => entries.push(entry.clone()),
        }
    }
    Node { place: over.place.clone(), value: Value::Map(entries) }
}
