//! YAML text to a [`Node`] tree: the one place that knows the YAML library.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Error as YamlError, Location, Spanned};

use super::node::{Entry, Node, Place, Value, refuse_source};
use crate::error::{Error, ErrorKind, Result};
use crate::suggest::printable;

/// The schema needs five levels; the rest is slack for mistakes that deserve a message of their own.
const MAX_DEPTH: usize = 16;
const MAX_NODES: usize = 20_000;
/// Far above what any mapping of a profile needs, and low enough for the merge to compare keys one by one.
const MAX_KEYS: usize = 512;
const MAX_ALIASES: usize = 64;
/// What all aliases together may expand to.
const MAX_REPLAYED: usize = 20_000;

/// The tree of the one document in `text`.
pub(crate) fn read(text: &str, source: &Arc<str>) -> Result<Node> {
    let tree: Spanned<Raw> = serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        // The library's words may quote the file, which must not reach a terminal as it is.
        let message = explain(&error).replace(char::is_control, " ");
        match error.location().filter(|location| location.line() > 0) {
            Some(location) => place(location, source).refuse(message),
            None => refuse_source(source, message),
        }
    })?;
    convert(tree, text, source)
}

/// `value` as YAML.
pub(crate) fn write(value: &impl serde::Serialize) -> Result<String> {
    serde_saphyr::to_string(value)
        .map_err(|why| Error::new(ErrorKind::Internal, format!("a profile cannot be written as YAML: {why}")))
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
        merge_keys: MergeKeyPolicy::Error,
        alias_limits: limits,
        strict_booleans: true,
        reject_unsupported_tags: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        emit_comments: false,
        with_snippet: false,
    }
}

fn place(location: Location, source: &Arc<str>) -> Place {
    Place { source: Arc::clone(source), line: location.line(), column: location.column() }
}

/// What went wrong, in our words where the library's would not help the author of a file.
fn explain(error: &YamlError) -> String {
    match error.without_snippet() {
        YamlError::AliasError { error, .. } => explain(error),
        YamlError::Eof { .. } => "the file is empty".into(),
        YamlError::MultipleDocuments { .. } => "a file holds one document, this one has more".into(),
        YamlError::DuplicateMappingKey { key: Some(key), .. } => {
            format!("duplicate key `{}`", printable(key))
        }
        YamlError::DuplicateMappingKey { key: None, .. } => "duplicate key".into(),
        YamlError::MergeKeyNotAllowed { .. } => "merge keys (`<<`) are not supported; use `extends`".into(),
        YamlError::UnsupportedTag { tag, .. } => format!("the tag `{}` is not supported", printable(tag)),
        YamlError::UnknownAnchor { .. } => "an alias names an anchor that is not defined".into(),
        YamlError::RecursiveReferencesRequireWeakTypes { .. } => "an anchor contains itself".into(),
        YamlError::NullIntoString { .. } => "a key is missing before `:`".into(),
        YamlError::Budget { breach, .. } => explain_breach(breach),
        YamlError::AliasReplayLimitExceeded { .. }
        | YamlError::AliasExpansionLimitExceeded { .. }
        | YamlError::AliasReplayCounterOverflow { .. }
        | YamlError::AliasReplayStackDepthExceeded { .. } => "the aliases expand to too much".into(),
        YamlError::ExternalMessage { msg, .. } => format!("not valid YAML: {msg}"),
        YamlError::Unexpected { expected, .. } => format!("not valid here: {expected} was expected"),
        other => format!("not valid YAML: {other}"),
    }
}

fn explain_breach(breach: &serde_saphyr::budget::BudgetBreach) -> String {
    use serde_saphyr::budget::BudgetBreach as Breach;
    match breach {
        Breach::Depth { .. } => format!("the nesting is deeper than {MAX_DEPTH} levels"),
        Breach::Documents { .. } => "a file holds one document, this one has more".into(),
        Breach::Aliases { .. } | Breach::Anchors { .. } | Breach::AliasAnchorRatio { .. } => {
            format!("there are more than {MAX_ALIASES} anchors or aliases")
        }
        Breach::RecordedAnchorEvents { .. } | Breach::RecordedAnchorBytes { .. } => {
            "the anchors hold too much".into()
        }
        _ => "the file has too many parts".into(),
    }
}

/// What the library's own typing makes of a node, before it is put back beside its text.
enum Raw {
    Null,
    Bool(bool),
    Number(String),
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
        Ok(Raw::Number(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<Raw, E> {
        Ok(Raw::Number(value.to_string()))
    }

    fn visit_i128<E>(self, value: i128) -> std::result::Result<Raw, E> {
        Ok(Raw::Number(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> std::result::Result<Raw, E> {
        Ok(Raw::Number(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<Raw, E> {
        Ok(Raw::Number(value.to_string()))
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

fn convert(node: Spanned<Raw>, text: &str, source: &Arc<str>) -> Result<Node> {
    let written = |location: Location| {
        let span = location.span();
        let start = usize::try_from(span.byte_offset()?).ok()?;
        let end = start.checked_add(usize::try_from(span.byte_len()?).ok()?)?;
        // A tag such as `!!int "5"` makes a number of something that is not one plain word.
        text.get(start..end)
            .map(str::trim)
            .filter(|word| !word.is_empty() && !word.starts_with(['"', '\'', '!']))
    };
    let value = match node.value {
        Raw::Null => Value::Null,
        Raw::Bool(value) => {
            Value::Bool(value, written(node.defined).map_or_else(|| value.to_string(), str::to_owned))
        }
        Raw::Number(shown) => Value::Number(written(node.defined).map_or(shown, str::to_owned)),
        Raw::Text(text) => Value::Text(text),
        Raw::List(items) => {
            Value::List(items.into_iter().map(|item| convert(item, text, source)).collect::<Result<_>>()?)
        }
        Raw::Map(pairs) => Value::Map(convert_map(pairs, text, source)?),
    };
    Ok(Node { place: place(node.referenced, source), value })
}

fn convert_map(
    pairs: Vec<(Spanned<String>, Spanned<Raw>)>,
    text: &str,
    source: &Arc<str>,
) -> Result<Vec<Entry>> {
    let mut seen = std::collections::HashSet::new();
    let mut entries = Vec::with_capacity(pairs.len());
    for (key, value) in pairs {
        let place = place(key.referenced, source);
        if entries.len() == MAX_KEYS {
            return Err(place.refuse(format!("a mapping has more than {MAX_KEYS} keys")));
        }
        // The library compares keys by their spelling; `a` and `"a"` are the same key to us.
        if !seen.insert(key.value.clone()) {
            return Err(place.refuse(format!("duplicate key `{}`", printable(&key.value))));
        }
        entries.push(Entry { key: key.value, place, node: convert(value, text, source)? });
    }
    Ok(entries)
}
