//! Whose price a file is. It must be known of a broken file as well, whose extension then has no price.

use super::PriceFile;
use super::decode::{as_price_error, card, read};
use super::rate::MAX_NAME;
use crate::error::{Error, Result};
use crate::profile::node::{Node, Value};

const KEY: &str = "extension";

/// By what it says, by its lines if it is broken, at last by its name; an error if nothing tells.
pub(super) fn extension_of(file: &PriceFile) -> Result<String> {
    let by_name = |error: &Error| by_name(&file.name).ok_or_else(|| as_price_error(error));
    let text = match file.text() {
        Ok(text) => text,
        Err(error) => return by_name(&error),
    };
    // Where the word stands once, nothing else can be meant, and most files need not be parsed to be put in order.
    let lines = by_lines(text);
    if let Some(extension) = lines.clone().filter(|_| text.matches(KEY).count() == 1) {
        return Ok(extension);
    }
    match read(file) {
        Ok(root) => match by_key(&root) {
            Some(extension) => Ok(extension),
            None => card(&root, &file.name).map(|card| card.extension).or_else(|error| by_name(&error)),
        },
        Err(error) => lines.map_or_else(|| by_name(&error), Ok),
    }
}

pub(super) fn is_extension(name: &str) -> bool {
    let rest = name.strip_prefix("ext.").unwrap_or_default();
    let is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '_');
    !rest.is_empty() && name.len() <= MAX_NAME && rest.chars().all(is_fine)
}

fn by_key(root: &Node) -> Option<String> {
    match &root.entry(KEY)?.node.value {
        Value::Text(text) if is_extension(text) => Some(text.clone()),
        _ => None,
    }
}

/// From the lines of a file, which need not be YAML. Nothing where they name several, or something else as well.
fn by_lines(text: &str) -> Option<String> {
    let mut named = text.lines().filter_map(value_of);
    let first = named.next()?;
    (is_extension(first) && named.all(|other| other == first)).then(|| first.to_owned())
}

/// What follows the key at the beginning of a line, however it is quoted.
fn value_of(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches(['"', '\'']).strip_prefix(KEY)?;
    let rest = rest.trim_start_matches(['"', '\'']).trim_start().strip_prefix(':')?;
    Some(rest.split(" #").next()?.trim().trim_matches(['"', '\'']))
}

/// `…/ext.e2b.yaml`, as the built-in files are called.
fn by_name(name: &str) -> Option<String> {
    let file = name.rsplit(['/', ':']).next()?;
    let (stem, ending) = file.rsplit_once('.')?;
    let is_price = ending.eq_ignore_ascii_case("yaml") || ending.eq_ignore_ascii_case("yml");
    (is_price && is_extension(stem)).then(|| stem.to_owned())
}
