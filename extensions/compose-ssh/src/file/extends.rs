//! `extends`: one service on top of another, of the same file or of another one in the bundle.

use std::collections::{BTreeMap, BTreeSet};

use sandboxer_core::suggest::printable;
use sandboxer_core::{ErrorKind, Result};

use super::node::{Entry, Node, Value};
use crate::bundle::{Bundle, Located};

const MAX_DEPTH: usize = 8;
/// Keys of which the upper service's value replaces the lower one's as a whole.
const REPLACED: [&str; 4] = ["command", "entrypoint", "test", "extends"];

/// The service with everything that it extends merged in below.
pub(crate) fn resolve(
    service: &Node,
    root: &Node,
    bundle: &Bundle,
    variables: &BTreeMap<String, String>,
    unset: &mut BTreeSet<String>,
) -> Result<Node> {
    step(service, root, bundle, variables, unset, 0)
}

fn step(
    service: &Node,
    root: &Node,
    bundle: &Bundle,
    variables: &BTreeMap<String, String>,
    unset: &mut BTreeSet<String>,
    depth: usize,
) -> Result<Node> {
    let Some(extends) = service.get("extends") else { return Ok(service.clone()) };
    let place = &extends.place;
    if depth == MAX_DEPTH {
        return Err(place.invalid("`extends` goes round in circles or is nested too deeply"));
    }
    let (file, name) = match &extends.node.value {
        Value::Text(name) => (None, name.clone()),
        _ => {
            let name =
                extends.node.get("service").ok_or_else(|| place.invalid("`extends` names no service"))?;
            let file = extends.node.get("file").map(|file| file.node.scalar("`file`")).transpose()?;
            (file, name.node.scalar("`service`")?)
        }
    };
    let other;
    let below_root = match file {
        None => root,
        Some(file) => {
            let base = super::folder_of(&place.file).to_owned();
            let Located::Inside { path, directory: false } = bundle.index.locate(&base, &file) else {
                return Err(place
                    .error(
                        ErrorKind::Refused,
                        format!("`extends` from `{}`, which is not a file of the bundle", printable(&file)),
                    )
                    .with_hint("put the file into the bundle"));
            };
            other = super::load(bundle, &path, variables, unset)?;
            &other
        }
    };
    let below =
        below_root.get("services").and_then(|services| services.node.get(&name)).ok_or_else(|| {
            place.invalid(format!("`extends` names `{}`, which is no service", printable(&name)))
        })?;
    let below = step(&below.node, below_root, bundle, variables, unset, depth + 1)?;
    Ok(merge(below, service.clone()))
}

fn merge(below: Node, above: Node) -> Node {
    let place = above.place.clone();
    let value = match (below.value, above.value) {
        (Value::Map(below), Value::Map(above)) => Value::Map(merge_maps(below, above)),
        (Value::List(mut below), Value::List(above)) => {
            below.extend(above);
            Value::List(below)
        }
        (below @ Value::Map(_), Value::List(above)) => {
            return merge(Node { place: place.clone(), value: below }, as_map(above, &place));
        }
        (Value::List(below), above @ Value::Map(_)) => {
            return merge(as_map(below, &place), Node { place: place.clone(), value: above });
        }
        (below, Value::Null) => below,
        (_, above) => above,
    };
    Node { place, value }
}

fn merge_maps(below: Vec<Entry>, above: Vec<Entry>) -> Vec<Entry> {
    let mut out = below;
    for entry in above {
        match out.iter_mut().find(|there| there.key == entry.key) {
            Some(there) if REPLACED.contains(&entry.key.as_str()) => *there = entry,
            Some(there) => {
                let below = std::mem::replace(&mut there.node.value, Value::Null);
                let below = Node { place: there.node.place.clone(), value: below };
                *there = Entry { key: entry.key, place: entry.place, node: merge(below, entry.node) };
            }
            None => out.push(entry),
        }
    }
    out.retain(|entry| entry.key != "extends");
    out
}

/// `- NAME=value` and `- name` as a mapping, as environment, labels and networks may be written.
fn as_map(items: Vec<Node>, place: &super::node::Place) -> Node {
    let entries = items
        .into_iter()
        .filter_map(|item| {
            let text = item.text()?.to_owned();
            let (key, value) = match text.split_once('=') {
                Some((key, value)) => (key.to_owned(), Value::Text(value.to_owned())),
                None => (text, Value::Null),
            };
            let place = item.place;
            Some(Entry { key, place: place.clone(), node: Node { place, value } })
        })
        .collect();
    Node { place: place.clone(), value: Value::Map(entries) }
}
