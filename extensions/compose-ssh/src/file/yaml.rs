//! YAML text to a [`Node`] tree: the one place here that knows the YAML library.

use std::fmt;
use std::sync::Arc;

use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Location, Spanned};

use super::node::{Entry, Node, Place, Value};

/// Far above any compose file that people write.
pub(crate) const MAX_BYTES: u64 = 1 << 20;
const MAX_DEPTH: usize = 24;
const MAX_NODES: usize = 50_000;
const MAX_ALIASES: usize = 512;
/// What all aliases together may expand to.
const MAX_REPLAYED: usize = 100_000;

/// The tree of the one document in `text`.
pub(crate) fn read(text: &str, file: &str) -> Result<Node> {
    let file: Arc<str> = Arc::from(file);
    let tree: Spanned<Raw> = serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        // The library's words may quote the file, which must not reach a terminal as it is.
        let message = error.without_snippet().to_string().replace(char::is_control, " ");
        match error.location().filter(|location| location.line() > 0) {
            Some(location) => place(location, &file).invalid(format!("not valid YAML: {message}")),
            None => Error::new(
                ErrorKind::InvalidInput,
                format!("{}: not valid YAML: {message}", printable(&file)),
            )
            .with_context("file", file.as_ref()),
        }
    })?;
    Ok(convert(tree, &file))
}

fn options() -> serde_saphyr::Options {
    let mut limits = serde_saphyr::options::AliasLimits::default();
    limits.max_total_replayed_events = MAX_REPLAYED;
    limits.max_replay_stack_depth = MAX_DEPTH;
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: 4 * MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ALIASES,
            max_documents: 1,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Merge,
        alias_limits: limits,
        strict_booleans: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        emit_comments: false,
        with_snippet: false,
    }
}

fn place(location: Location, file: &Arc<str>) -> Place {
    Place { file: Arc::clone(file), line: location.line() }
}

/// What the library's own typing makes of a node.
enum Raw {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> std::result::Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<Raw, E> {
        Ok(Raw::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<Raw, E> {
        Ok(Raw::Number(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> std::result::Result<Raw, E> {
        Ok(Raw::Text(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> std::result::Result<Raw, E> {
        Ok(Raw::Text(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<Raw, E> {
        Ok(serde_json::Number::from_f64(value).map_or_else(|| Raw::Text(value.to_string()), Raw::Number))
    }

    fn visit_str<E>(self, value: &str) -> std::result::Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> std::result::Result<Raw, E> {
        Ok(Raw::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}

/// Places are those of the definition: of an anchor's own line, not of the alias that repeats it.
fn convert(node: Spanned<Raw>, file: &Arc<str>) -> Node {
    let value = match node.value {
        Raw::Null => Value::Null,
        Raw::Bool(value) => Value::Bool(value),
        Raw::Number(number) => Value::Number(number),
        Raw::Text(text) => Value::Text(text),
        Raw::List(items) => Value::List(items.into_iter().map(|item| convert(item, file)).collect()),
        Raw::Map(pairs) => Value::Map(convert_map(pairs, file)),
    };
    Node { place: place(node.defined, file), value }
}

/// The library compares keys by their spelling; `a` and `"a"` are the same key to us, and the later one counts.
fn convert_map(pairs: Vec<(Spanned<String>, Spanned<Raw>)>, file: &Arc<str>) -> Vec<Entry> {
    let mut seen = std::collections::HashMap::new();
    let mut entries: Vec<Entry> = Vec::with_capacity(pairs.len());
    for (key, value) in pairs {
        let entry = Entry { place: place(key.defined, file), key: key.value, node: convert(value, file) };
        match seen.get(&entry.key) {
            Some(&index) => entries[index] = entry,
            None => {
                seen.insert(entry.key.clone(), entries.len());
                entries.push(entry);
            }
        }
    }
    entries
}
