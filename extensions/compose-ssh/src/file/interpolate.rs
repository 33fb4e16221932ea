//! `${VARIABLE}` in a compose file, put in before anything is judged: what is judged is what runs.

use std::collections::{BTreeMap, BTreeSet};

use sandboxer_core::{Error, Result};

use super::node::{Node, Place, Value};

/// `${A:-${B:-…}}` nests no deeper than this in files that people write.
const MAX_DEPTH: usize = 8;
/// What one value may grow to.
const MAX_VALUE: usize = 64 << 10;

/// Puts the variables into every value of the tree. Names that are unset and have no default become empty and are
/// collected in `unset`, as compose tools warn about them.
pub(crate) fn apply(
    node: &mut Node,
    variables: &BTreeMap<String, String>,
    unset: &mut BTreeSet<String>,
) -> Result<()> {
    match &mut node.value {
        Value::Text(text) => {
            if text.contains('$') {
                let mut scanner = Scanner { variables, unset, place: &node.place };
                let filled = scanner.fill(text, 0)?;
                if filled.len() > MAX_VALUE {
                    return Err(node.place.invalid("the value grows beyond 64 KiB by its variables"));
                }
                *text = filled;
            }
        }
        Value::List(items) => {
            for item in items {
                apply(item, variables, unset)?;
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                apply(&mut entry.node, variables, unset)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

struct Scanner<'a> {
    variables: &'a BTreeMap<String, String>,
    unset: &'a mut BTreeSet<String>,
    place: &'a Place,
}

impl Scanner<'_> {
    fn fill(&mut self, text: &str, depth: usize) -> Result<String> {
        if depth > MAX_DEPTH {
            return Err(self.place.invalid("variables are nested too deeply"));
        }
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                out.push('$');
                rest = after;
            } else if let Some(after) = rest.strip_prefix('{') {
                let end = closing(after).ok_or_else(|| self.malformed(text))?;
                out.push_str(&self.braced(&after[..end], text, depth)?);
                rest = &after[end + 1..];
            } else {
                let length = name_length(rest);
                if length == 0 {
                    return Err(self.malformed(text));
                }
                out.push_str(&self.plain(&rest[..length]));
                rest = &rest[length..];
            }
            if out.len() > MAX_VALUE {
                return Err(self.place.invalid("the value grows beyond 64 KiB by its variables"));
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    fn plain(&mut self, name: &str) -> String {
        match self.variables.get(name) {
            Some(value) => value.clone(),
            None => {
                self.unset.insert(name.to_owned());
                String::new()
            }
        }
    }

    /// The inside of `${…}`.
    fn braced(&mut self, inside: &str, text: &str, depth: usize) -> Result<String> {
        let (name, operator) = inside.split_at(name_length(inside));
        if name.is_empty() {
            return Err(self.malformed(text));
        }
        let (empty_counts, operator) = match operator.strip_prefix(':') {
            Some(rest) => (true, rest),
            None => (false, operator),
        };
        let set = self.variables.get(name).filter(|value| !(empty_counts && value.is_empty())).cloned();
        match operator.chars().next() {
            None if !empty_counts => Ok(self.plain(name)),
            Some('-') => match set {
                Some(value) => Ok(value),
                None => self.fill(&operator[1..], depth + 1),
            },
            Some('+') => match set {
                Some(_) => self.fill(&operator[1..], depth + 1),
                None => Ok(String::new()),
            },
            Some('?') => match set {
                Some(value) => Ok(value),
                None => {
                    let why = self.fill(&operator[1..], depth + 1)?;
                    let why = sandboxer_core::suggest::printable(&why);
                    Err(self
                        .place
                        .invalid(format!("the variable {name} is required: {why}"))
                        .with_hint(format!("give it with `--env {name}=…`")))
                }
            },
            _ => Err(self.malformed(text)),
        }
    }

    fn malformed(&self, text: &str) -> Error {
        let shown = sandboxer_core::suggest::printable(text);
        self.place
            .invalid(format!("`{shown}` has a `$` that is no variable"))
            .with_hint("write `$$` for a dollar sign")
    }
}

fn name_length(text: &str) -> usize {
    let mut bytes = text.bytes();
    match bytes.next() {
        Some(first) if first.is_ascii_alphabetic() || first == b'_' => {
            1 + bytes.take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()
        }
        _ => 0,
    }
}

/// Where the brace closes that was opened just before `text`.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' if open == 0 => return Some(at),
            b'}' => open -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str) -> Result<String> {
        let variables =
            BTreeMap::from([("A".to_owned(), "1".to_owned()), ("EMPTY".to_owned(), String::new())]);
        let place = Place { file: "compose.yaml".into(), line: 3 };
        Scanner { variables: &variables, unset: &mut BTreeSet::new(), place: &place }.fill(text, 0)
    }

    #[test]
    fn every_form_of_the_specification() {
        for (text, wanted) in [
            ("$A-${A}", "1-1"),
            ("a$$b", "a$b"),
            ("${B:-x}", "x"),
            ("${EMPTY:-x}", "x"),
            ("${EMPTY-x}", ""),
            ("${A:+yes}${B:+no}", "yes"),
            ("${B:-${C:-deep}}", "deep"),
            ("${B-}", ""),
            ("[$B]", "[]"),
        ] {
            assert_eq!(fill(text).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn mistakes_have_their_line() {
        for text in ["$", "${", "${A", "$1", "${A!x}", "${}"] {
            assert!(fill(text).unwrap_err().to_string().starts_with("compose.yaml:3: "), "{text}");
        }
        let required = fill("${TOKEN:?set me}").unwrap_err();
        assert_eq!(required.to_string(), "compose.yaml:3: the variable TOKEN is required: set me");
    }
}
