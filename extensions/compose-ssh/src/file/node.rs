//! A compose file as a tree that remembers where each part was written.

use std::fmt;
use std::sync::Arc;

use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind};
use serde_json::Value as Json;

/// A position in a file of the bundle; lines count from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: Arc<str>,
    pub(crate) line: u64,
}

impl Place {
    /// `FILE:LINE: message` as an error of the caller's input, with the parts as context for machines.
    pub(crate) fn invalid(&self, message: impl fmt::Display) -> Error {
        self.error(ErrorKind::InvalidInput, message)
    }

    pub(crate) fn error(&self, kind: ErrorKind, message: impl fmt::Display) -> Error {
        Error::new(kind, format!("{self}: {message}"))
            .with_context("file", self.file.as_ref())
            .with_context("line", self.line.to_string())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", printable(&self.file), self.line)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// Where the key stands.
    pub(crate) place: Place,
    pub(crate) node: Node,
}

impl Node {
    pub(crate) fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// The entries of a mapping; nothing at all is an empty one.
    pub(crate) fn map(&self, what: &str) -> Result<&[Entry], Error> {
        match &self.value {
            Value::Map(entries) => Ok(entries),
            Value::Null => Ok(&[]),
            other => Err(self.place.invalid(format!("{what} must be a mapping, not {}", other.describe()))),
        }
    }

    pub(crate) fn list(&self, what: &str) -> Result<&[Node], Error> {
        match &self.value {
            Value::List(items) => Ok(items),
            Value::Null => Ok(&[]),
            other => Err(self.place.invalid(format!("{what} must be a list, not {}", other.describe()))),
        }
    }

    /// A list, or one value that stands for a list of itself.
    pub(crate) fn one_or_many(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            Value::Null => &[],
            _ => std::slice::from_ref(self),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// Text, or a scalar as it would be written.
    pub(crate) fn scalar(&self, what: &str) -> Result<String, Error> {
        match &self.value {
            Value::Text(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            Value::Bool(value) => Ok(value.to_string()),
            other => Err(self.place.invalid(format!("{what} must be text, not {}", other.describe()))),
        }
    }

    /// The text, where it is text.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Anything but a plain no. Compose tools disagree on `yes` and `"true"`, so doubt counts as yes.
    pub(crate) fn is_on(&self) -> bool {
        !matches!(&self.value, Value::Null | Value::Bool(false))
            && !self.text().is_some_and(|text| text.eq_ignore_ascii_case("false"))
    }

    /// The same as JSON, with every `$` doubled: it has been interpolated and must not be again.
    pub(crate) fn json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Number(number) => Json::Number(number.clone()),
            Value::Text(text) => Json::String(escape(text)),
            Value::List(items) => Json::Array(items.iter().map(Self::json).collect()),
            Value::Map(entries) => {
                Json::Object(entries.iter().map(|entry| (entry.key.clone(), entry.node.json())).collect())
            }
        }
    }
}

/// Text that a compose tool reads back as it is.
pub(crate) fn escape(text: &str) -> String {
    text.replace('$', "$$")
}

impl Value {
    pub(crate) fn describe(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}
