//! A profile file as a tree that remembers where each part was written, also after a merge.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};

/// A position in a named source; lines and columns count from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) source: Arc<str>,
    pub(crate) line: u64,
    pub(crate) column: u64,
}

impl Place {
    /// `FILE:LINE:COL: message` as an error, with the parts as context for machines.
    pub(crate) fn refuse(&self, message: impl fmt::Display) -> Error {
        Error::new(ErrorKind::InvalidProfile, format!("{self}: {message}"))
            .with_context("file", self.source.as_ref())
            .with_context("line", self.line.to_string())
            .with_context("column", self.column.to_string())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.source, self.line, self.column)
    }
}

/// An error that concerns a source as a whole.
pub(crate) fn refuse_source(source: &str, message: impl fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidProfile, format!("{source}: {message}")).with_context("file", source)
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool, String),
    /// As it was written, so that `0.10` and `007` lose nothing.
    Number(String),
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

impl Value {
    pub(crate) fn describe(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(..) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

impl Node {
    pub(crate) fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// The entry with this key, where this is a mapping.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The place of the value at `path`, or of the nearest thing above it that was written.
    pub(crate) fn place_of(&self, path: &Path) -> Option<&Place> {
        self.walk(path, false)
    }

    /// As [`Node::place_of`], of the key instead of the value.
    pub(crate) fn place_of_key(&self, path: &Path) -> Option<&Place> {
        self.walk(path, true)
    }

    fn walk(&self, path: &Path, want_key: bool) -> Option<&Place> {
        let mut here = self;
        let mut found = None;
        for (index, step) in path.0.iter().enumerate() {
            let last = index + 1 == path.0.len();
            match (step, &here.value) {
                (Step::Key(key), Value::Map(_)) => {
                    let Some(entry) = here.entry(key) else { return found };
                    here = &entry.node;
                    found = Some(if last && !want_key { &here.place } else { &entry.place });
                }
                (Step::Item(item), Value::List(items)) => {
                    let Some(node) = items.get(*item) else { return found };
                    here = node;
                    found = Some(&here.place);
                }
                _ => return found,
            }
        }
        found
    }
}

/// The way to a part of a profile, written `network.egress[0].host`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path(Vec<Step>);

#[derive(Clone, Debug)]
enum Step {
    Key(String),
    Item(usize),
}

impl Path {
    /// The way along these keys.
    pub(crate) fn of(keys: &[&str]) -> Self {
        Self(keys.iter().map(|key| Step::Key((*key).to_owned())).collect())
    }

    #[must_use]
    pub(crate) fn key(&self, key: &str) -> Self {
        self.then(Step::Key(key.to_owned()))
    }

    #[must_use]
    pub(crate) fn item(&self, index: usize) -> Self {
        self.then(Step::Item(index))
    }

    fn then(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    pub(crate) fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if index == 0 => write!(f, "{}", crate::suggest::printable(key))?,
                Step::Key(key) => write!(f, ".{}", crate::suggest::printable(key))?,
                Step::Item(item) => write!(f, "[{item}]")?,
            }
        }
        Ok(())
    }
}
