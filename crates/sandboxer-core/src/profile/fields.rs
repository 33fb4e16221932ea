//! Reads the values of one mapping, each with an error that says where and what was expected.

use super::decode::{SECTIONS, Section};
use super::node::{Node, Path, Place, Value};
use crate::duration::Dur;
use crate::error::{Error, Result};
use crate::money::Money;
use crate::suggest::{did_you_mean, nearest, printable};

/// One mapping whose keys have all been found to be known.
pub(crate) struct Fields<'a> {
    /// Absent where the section was left out.
    node: Option<&'a Node>,
    path: Path,
}

impl<'a> Fields<'a> {
    /// Refuses anything but a mapping with keys of `section`.
    pub(crate) fn open(node: &'a Node, path: Path, section: &'static Section) -> Result<Self> {
        let Value::Map(entries) = &node.value else {
            let wanted = if path.is_root() { "the file".to_owned() } else { format!("`{path}`") };
            return Err(node
                .place
                .refuse(format!("{wanted}: expected a mapping, found {}", node.value.describe()))
                .with_hint(format!("its keys are {}", list(section.keys))));
        };
        match entries.iter().find(|entry| !section.keys.contains(&entry.key.as_str())) {
            Some(entry) => Err(unknown_key(&entry.key, &entry.place, &path, section)),
            None => Ok(Self { node: Some(node), path }),
        }
    }

    /// The mapping that is named as `section`; left out or empty it has no values.
    pub(crate) fn section(&self, section: &'static Section) -> Result<Self> {
        let key = section.name.rsplit('.').next().unwrap_or_default();
        let path = self.path.key(key);
        match self.get_at(key) {
            Some(node) => Self::open(node, path, section),
            None => Ok(Self { node: None, path }),
        }
    }

    /// The value of `key`, unless it is left out or null.
    fn get_at(&self, key: &str) -> Option<&'a Node> {
        self.node.and_then(|node| node.entry(key)).map(|entry| &entry.node).filter(|node| !node.is_null())
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.get_at(key).is_some()
    }

    /// Whether a mapping was written there, for a key that may also be a single value.
    pub(crate) fn is_mapping(&self, key: &str) -> bool {
        self.get_at(key).is_some_and(|node| matches!(node.value, Value::Map(_)))
    }

    /// Whole numbers under any key, with nulls left out.
    pub(crate) fn whole_map<T: TryFrom<u64>>(&self, key: &str) -> Result<Vec<(String, T)>> {
        let Some(node) = self.get_at(key) else { return Ok(Vec::new()) };
        let path = self.path.key(key);
        let Value::Map(entries) = &node.value else {
            return Err(expected(node, &path, "a mapping of names to whole numbers"));
        };
        let given = entries.iter().filter(|entry| !entry.node.is_null());
        given.map(|entry| Ok((entry.key.clone(), whole(&entry.node, &path.key(&entry.key))?))).collect()
    }

    /// An error about the mapping itself.
    pub(crate) fn refuse(&self, message: impl std::fmt::Display) -> Option<Error> {
        self.node.map(|node| node.place.refuse(message))
    }

    /// An error about the value of `key`, or about the mapping where the key was left out.
    pub(crate) fn refuse_at(&self, key: &str, message: impl std::fmt::Display) -> Error {
        let message = format!("`{}`: {message}", self.path.key(key));
        match self.get_at(key).or(self.node) {
            Some(node) => node.place.refuse(message),
            None => Error::new(crate::ErrorKind::InvalidProfile, message),
        }
    }

    pub(crate) fn missing(&self, key: &str) -> Error {
        let message = if self.path.is_root() {
            format!("the key `{key}` is missing")
        } else {
            format!("the key `{key}` is missing in `{}`", self.path)
        };
        self.refuse(&message).unwrap_or_else(|| Error::new(crate::ErrorKind::InvalidProfile, message))
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<String>> {
        self.get_at(key).map(|node| text(node, &self.path.key(key))).transpose()
    }

    pub(crate) fn required_text(&self, key: &str) -> Result<String> {
        self.text(key)?.ok_or_else(|| self.missing(key))
    }

    /// Text that may look like a number, which is then taken as it was written.
    pub(crate) fn required_word(&self, key: &str) -> Result<String> {
        match self.get_at(key).map(|node| &node.value) {
            Some(Value::Number(written)) => Ok(written.clone()),
            _ => self.required_text(key),
        }
    }

    pub(crate) fn texts(&self, key: &str) -> Result<Vec<String>> {
        self.each(key, |node, path| text(node, &path))
    }

    /// Text under any key, with numbers and booleans as they were written and nulls left out.
    pub(crate) fn free_map(&self, key: &str) -> Result<Vec<(String, String)>> {
        let Some(node) = self.get_at(key) else { return Ok(Vec::new()) };
        let path = self.path.key(key);
        let Value::Map(entries) = &node.value else {
            return Err(expected(node, &path, "a mapping of names to values"));
        };
        let value = |entry: &super::node::Entry| match &entry.node.value {
            Value::Null => None,
            Value::Text(text) | Value::Number(text) | Value::Bool(_, text) => {
                Some(Ok((entry.key.clone(), text.clone())))
            }
            Value::List(_) | Value::Map(_) => Some(Err(expected(&entry.node, &path.key(&entry.key), "text"))),
        };
        entries.iter().filter_map(value).collect()
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>> {
        let Some(node) = self.get_at(key) else { return Ok(None) };
        match &node.value {
            Value::Bool(value, _) => Ok(Some(*value)),
            _ => Err(expected(node, &self.path.key(key), "`true` or `false`")),
        }
    }

    pub(crate) fn whole<T: TryFrom<u64>>(&self, key: &str) -> Result<Option<T>> {
        self.get_at(key).map(|node| whole(node, &self.path.key(key))).transpose()
    }

    pub(crate) fn wholes<T: TryFrom<u64>>(&self, key: &str) -> Result<Vec<T>> {
        self.each(key, |node, path| whole(node, &path))
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>> {
        let Some(node) = self.get_at(key) else { return Ok(None) };
        let number = match &node.value {
            Value::Number(written) => written.parse::<f64>().ok().filter(|number| number.is_finite()),
            _ => None,
        };
        number.map(Some).ok_or_else(|| expected(node, &self.path.key(key), "a number"))
    }

    pub(crate) fn duration(&self, key: &str) -> Result<Option<Dur>> {
        self.written(key, "a duration such as `30m`")
    }

    pub(crate) fn money(&self, key: &str) -> Result<Option<Money>> {
        self.written(key, "an amount such as `0.25`")
    }

    /// A value with a notation of its own, which may look like a number.
    fn written<T: std::str::FromStr<Err = Error>>(&self, key: &str, wanted: &str) -> Result<Option<T>> {
        let Some(node) = self.get_at(key) else { return Ok(None) };
        let (Value::Text(text) | Value::Number(text)) = &node.value else {
            return Err(expected(node, &self.path.key(key), wanted));
        };
        text.parse().map(Some).map_err(|why: Error| {
            let error = node.place.refuse(format!("`{}`: {why}", self.path.key(key)));
            match why.hint() {
                Some(hint) => error.with_hint(hint),
                None => error,
            }
        })
    }

    /// One of a closed list of words.
    pub(crate) fn choice<T: Copy>(&self, key: &str, choices: &[(&'static str, T)]) -> Result<Option<T>> {
        let Some(node) = self.get_at(key) else { return Ok(None) };
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let word = match &node.value {
            Value::Text(word) | Value::Number(word) | Value::Bool(_, word) => word,
            _ => return Err(expected(node, &self.path.key(key), &format!("one of {}", list(&words)))),
        };
        choices.iter().find(|(name, _)| name == word).map(|(_, value)| Some(*value)).ok_or_else(|| {
            let hint = did_you_mean(word, words.iter().copied());
            let verb = if words.len() == 1 { "its only value is" } else { "its values are" };
            node.place
                .refuse(format!("`{}` is not a value of `{}`", printable(word), self.path.key(key)))
                .with_hint(hint.unwrap_or_else(|| format!("{verb} {}", list(&words))))
        })
    }

    /// A list of words of a closed list.
    pub(crate) fn choices<T: Copy>(&self, key: &str, choices: &[(&'static str, T)]) -> Result<Vec<T>> {
        self.each(key, |node, path| {
            let word = text(node, &path)?;
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            choices.iter().find(|(name, _)| *name == word).map(|(_, value)| *value).ok_or_else(|| {
                node.place
                    .refuse(format!("`{path}`: `{}` is not one of its values", printable(&word)))
                    .with_hint(
                        did_you_mean(&word, words.iter().copied())
                            .unwrap_or_else(|| format!("its values are {}", list(&words))),
                    )
            })
        })
    }

    /// Every item of the list under `key`, as a mapping.
    pub(crate) fn mappings<T>(
        &self,
        key: &str,
        section: &'static Section,
        mut read: impl FnMut(Fields<'a>) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.each(key, |node, path| read(Fields::open(node, path, section)?))
    }

    /// Every mapping under `key`, by its name.
    pub(crate) fn named_mappings<T>(
        &self,
        key: &str,
        section: &'static Section,
        mut read: impl FnMut(&str, Fields<'a>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let Some(node) = self.get_at(key) else { return Ok(Vec::new()) };
        let path = self.path.key(key);
        let Value::Map(entries) = &node.value else {
            return Err(expected(node, &path, "a mapping of names"));
        };
        let one = |entry: &'a super::node::Entry| {
            read(&entry.key, Fields::open(&entry.node, path.key(&entry.key), section)?)
        };
        entries.iter().map(one).collect()
    }

    fn each<T>(&self, key: &str, mut read: impl FnMut(&'a Node, Path) -> Result<T>) -> Result<Vec<T>> {
        let Some(node) = self.get_at(key) else { return Ok(Vec::new()) };
        let path = self.path.key(key);
        let Value::List(items) = &node.value else {
            return Err(expected(node, &path, "a list"));
        };
        items.iter().enumerate().map(|(index, item)| read(item, path.item(index))).collect()
    }
}

fn text(node: &Node, path: &Path) -> Result<String> {
    match &node.value {
        Value::Text(text) => Ok(text.clone()),
        Value::Number(written) | Value::Bool(_, written) => {
            Err(expected(node, path, "text").with_hint(format!("put it in quotes: `\"{written}\"`")))
        }
        _ => Err(expected(node, path, "text")),
    }
}

fn whole<T: TryFrom<u64>>(node: &Node, path: &Path) -> Result<T> {
    let number = |written: &str| written.parse::<u64>().ok().and_then(|number| T::try_from(number).ok());
    match &node.value {
        Value::Number(written) => number(written).ok_or_else(|| {
            node.place
                .refuse(format!("`{path}`: `{}` is not a whole number that fits here", printable(written)))
        }),
        Value::Text(text) if number(text).is_some() => {
            Err(expected(node, path, "a whole number").with_hint(format!("leave the quotes out: `{text}`")))
        }
        _ => Err(expected(node, path, "a whole number")),
    }
}

fn expected(node: &Node, path: &Path, wanted: &str) -> Error {
    let found = match &node.value {
        Value::Text(text) | Value::Number(text) | Value::Bool(_, text) => {
            format!("{} `{}`", node.value.describe(), printable(text))
        }
        other => other.describe().to_owned(),
    };
    node.place.refuse(format!("`{path}`: expected {wanted}, found {found}"))
}

fn unknown_key(key: &str, place: &Place, path: &Path, section: &Section) -> Error {
    let shown = printable(key);
    let error = if path.is_root() {
        place.refuse(format!("unknown key `{shown}`"))
    } else {
        place.refuse(format!("unknown key `{shown}` in `{path}`"))
    };
    // Hints about other keys of the schema are right for profiles alone.
    if !SECTIONS.iter().any(|known| std::ptr::eq(*known, section)) {
        let known = || format!("known keys here are {}", list(section.keys));
        return error.with_hint(did_you_mean(key, section.keys.iter().copied()).unwrap_or_else(known));
    }
    if let Some((_, ours)) = SYNONYMS.iter().find(|(theirs, _)| path.is_root() && *theirs == key) {
        return error.with_hint(format!("did you mean `{ours}`?"));
    }
    error.with_hint(match (nearest(key, section.keys.iter().copied()), home_of(key)) {
        (Some(known), _) => format!("did you mean `{known}`?"),
        (None, Some(home)) => format!("`{shown}` belongs {home}"),
        (None, None) => format!("known keys here are {}", list(section.keys)),
    })
}

/// What other tools call things that have another name here.
const SYNONYMS: [(&str, &str); 10] = [
    ("base", "extends"),
    ("command", "setup.commands"),
    ("commands", "setup.commands"),
    ("env", "variables"),
    ("environment", "variables"),
    ("memory", "resources.memory_mb"),
    ("name", "id"),
    ("timeout", "ttl"),
    ("volumes", "mounts"),
    ("limits", "resources"),
];

/// Where a key that stands in the wrong section would be right, if that is in one place only.
fn home_of(key: &str) -> Option<String> {
    let mut homes = SECTIONS.iter().filter(|section| section.keys.contains(&key));
    let (section, None) = (homes.next()?, homes.next()) else { return None };
    Some(if section.name.is_empty() { "at the top level".into() } else { format!("in `{}`", section.name) })
}

pub(crate) fn list(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
