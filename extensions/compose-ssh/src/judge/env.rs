//! Environment, labels and env files: nothing of the host's own environment gets in.

use sandboxer_core::suggest::printable;
use sandboxer_core::{ErrorKind, Result};
use serde_json::{Map, Value as Json};

use super::{Judge, Service};
use crate::bundle::Located;
use crate::file::node::{Node, Value, escape};

impl Judge<'_> {
    /// Names without a value take it from the request's variables; compose tools would take the host's.
    pub(super) fn environment(&mut self, node: &Node) -> Result<Json> {
        let mut out = Map::new();
        for (name, value) in pairs(node, "`environment`")? {
            match value.or_else(|| self.variables.get(&name).cloned()) {
                Some(value) => {
                    out.insert(name, Json::String(escape(&value)));
                }
                None => self.note(format!("not set, so left out: {}", printable(&name))),
            }
        }
        Ok(Json::Object(out))
    }

    /// Without those that would make the container look like somebody else's.
    pub(super) fn labels(&mut self, node: &Node) -> Result<Map<String, Json>> {
        let mut out = Map::new();
        for (name, value) in pairs(node, "`labels`")? {
            if name.starts_with("dev.sandboxer.") || name.starts_with("com.docker.compose.") {
                self.note(format!(
                    "the label `{}` is left out: it is not the file's to set",
                    printable(&name)
                ));
                continue;
            }
            out.insert(name, Json::String(escape(&value.unwrap_or_default())));
        }
        Ok(out)
    }

    pub(super) fn env_file(&mut self, service: &mut Service, node: &Node) -> Result<()> {
        for item in node.one_or_many() {
            let (path, required) = match item.get("path") {
                Some(path) => {
                    let optional = item.get("required").is_some_and(|required| !required.node.is_on());
                    (path.node.scalar("`path`")?, !optional)
                }
                None => (item.scalar("an env file")?, true),
            };
            let base = crate::file::folder_of(&item.place.file).to_owned();
            match self.bundle.index.locate(&base, &path) {
                Located::Inside { path, directory: false } => service.env_files.push(path),
                Located::Outside => {
                    self.refuse(
                        &item.place,
                        format!("the env file `{}` is outside the bundle", printable(&path)),
                    );
                }
                _ if !required => {}
                Located::Missing { path: inside } => return Err(self.left_behind(item, &path, &inside)),
                Located::Inside { .. } => {
                    return Err(item
                        .place
                        .invalid(format!("the env file `{}` is a folder", printable(&path))));
                }
            }
        }
        Ok(())
    }

    /// A file that the stack needs and that is not in the bundle, and how to get it in.
    pub(super) fn left_behind(&self, node: &Node, written: &str, inside: &str) -> sandboxer_core::Error {
        let shown = printable(written);
        if self.bundle.left_out.iter().any(|path| path == inside) {
            return node
                .place
                .error(ErrorKind::InvalidInput, format!("`{shown}` looks like credentials and stayed behind"))
                .with_hint(format!(
                    "take it along with `--input include={}` or the line `!/{}` in .sandboxerignore",
                    printable(inside),
                    printable(inside)
                ));
        }
        node.place.invalid(format!("`{shown}` is not in the bundle")).with_hint(format!(
            "ignored files are left out; `--input include={}` takes it along",
            printable(inside)
        ))
    }
}

/// `NAME: value` or `- NAME=value`; no value where none is written.
pub(super) fn pairs(node: &Node, what: &str) -> Result<Vec<(String, Option<String>)>> {
    let mut out = Vec::new();
    if let Value::Map(entries) = &node.value {
        for entry in entries {
            let value = match entry.node.is_null() {
                true => None,
                false => Some(entry.node.scalar(&format!("`{}`", printable(&entry.key)))?),
            };
            out.push((entry.key.clone(), value));
        }
        return Ok(out);
    }
    for item in node.list(what)? {
        let text = item.scalar(what)?;
        match text.split_once('=') {
            Some((name, value)) => out.push((name.to_owned(), Some(value.to_owned()))),
            None => out.push((text, None)),
        }
    }
    Ok(out)
}
