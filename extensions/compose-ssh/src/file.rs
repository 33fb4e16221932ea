//! Reading compose files: YAML with places, variables put in, `extends` followed.

pub(crate) mod extends;
pub(crate) mod interpolate;
pub(crate) mod node;
pub(crate) mod yaml;

use std::collections::{BTreeMap, BTreeSet};

use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};

use crate::bundle::{Bundle, COMPOSE_NAMES, Located};
use node::Node;

/// The path of the compose file in the bundle: the one that was named, or the first of the usual names.
pub(crate) fn find(bundle: &Bundle, named: Option<&str>) -> Result<String> {
    if let Some(named) = named {
        return match bundle.index.locate("", named) {
            Located::Inside { path, directory: false } => Ok(path),
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                format!("the compose file `{}` is not in the bundle", printable(named)),
            )
            .with_hint(
                "`compose.file` of the profile is relative to the bundle, and ignored files are left out",
            )),
        };
    }
    if let Some(name) = COMPOSE_NAMES.iter().find(|name| bundle.index.is_file(name)) {
        return Ok((*name).to_owned());
    }
    let top: Vec<String> = bundle.index.top().take(8).map(printable).collect();
    Err(Error::new(ErrorKind::InvalidInput, "the bundle has no compose file").with_hint(format!(
        "looked for {}; the bundle starts with: {}",
        COMPOSE_NAMES.join(", "),
        if top.is_empty() { "nothing".to_owned() } else { top.join(", ") }
    )))
}

/// One file of the bundle as a tree with its variables put in.
pub(crate) fn load(
    bundle: &Bundle,
    path: &str,
    variables: &BTreeMap<String, String>,
    unset: &mut BTreeSet<String>,
) -> Result<Node> {
    let text = bundle.text(path, yaml::MAX_BYTES)?;
    let mut node = yaml::read(&text, path)?;
    interpolate::apply(&mut node, variables, unset)?;
    Ok(node)
}

/// The variables of the request over those of the bundle's own `.env`, if it is part of the bundle.
pub(crate) fn variables(
    bundle: &Bundle,
    file: &str,
    given: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>> {
    let mut out = BTreeMap::new();
    if let Located::Inside { path, directory: false } = bundle.index.locate(folder_of(file), ".env") {
        for (number, line) in bundle.text(&path, yaml::MAX_BYTES)?.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let line = line.strip_prefix("export ").unwrap_or(line);
            let Some((name, value)) = line.split_once('=') else { continue };
            let name = name.trim();
            if !sandboxer_core::exec::is_env_name(name) {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!("{}:{}: not a variable name", printable(&path), number + 1),
                ));
            }
            out.insert(name.to_owned(), unquote(value.trim()).to_owned());
        }
    }
    out.extend(given.clone());
    Ok(out)
}

fn unquote(value: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return inner;
        }
    }
    value.split_once(" #").map_or(value, |(value, _)| value.trim_end())
}

/// The folder that relative paths in a file are relative to.
pub(crate) fn folder_of(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}
