//! The name of a profile from the lines of its file, without parsing YAML.
//!
//! Only the common way of writing is understood. Everything else is left to the parser, which also has the last word.

use sandboxer_core::profile::{ProfileRef, Version};

/// The id and version, if each stands once at the beginning of a line.
pub(super) fn name(text: &str) -> Option<(String, Version)> {
    Some((id(text)?, value(text, "version:")?.parse().ok()?))
}

pub(super) fn id(text: &str) -> Option<String> {
    let reference = ProfileRef::parse(value(text, "id:")?).ok()?;
    reference.version.is_none().then_some(reference.id)
}

/// The rest of the only line that begins with `key`, without quotes and comment.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(key));
    let (rest, None) = (lines.next()?, lines.next()) else { return None };
    let rest = rest.strip_prefix(' ')?;
    let rest = rest.split_once(" #").map_or(rest, |(value, _)| value).trim();
    let quoted = |quote: char| rest.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    Some(quoted('"').or_else(|| quoted('\'')).unwrap_or(rest))
}
