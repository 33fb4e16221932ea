//! What is put inside: variables, mounts and setup commands.

use std::collections::{BTreeMap, HashMap};

use super::{MAX_LIST, MAX_TEXT, Rules};
use crate::error::Result;
use crate::exec::is_env_name;
use crate::profile::node::Path;
use crate::profile::schema::{Mount, Setup};
use crate::suggest::printable;

/// Endings of names whose values nobody should write into a file that everyone inside can read.
const SECRET_ENDINGS: [&str; 9] = [
    "TOKEN",
    "PASSWORD",
    "PASSWD",
    "SECRET",
    "API_KEY",
    "APIKEY",
    "PRIVATE_KEY",
    "SECRET_KEY",
    "SECRET_ACCESS_KEY",
];
/// Where the runtime puts its own file systems.
const RESERVED_TARGETS: [&str; 3] = ["/proc", "/sys", "/dev"];
const MAX_PATH: usize = 4_095;

pub(super) fn variables(rules: &Rules<'_>, variables: &BTreeMap<String, String>) -> Result<()> {
    let path = Path::of(&["variables"]);
    rules.bounded_list(&path, variables.len())?;
    for (name, value) in variables {
        let path = path.key(name);
        if !is_env_name(name) || name.len() > super::MAX_NAME {
            return Err(rules
                .refuse_key(&path, "it is not a variable name")
                .with_hint("letters, digits and `_`, not beginning with a digit"));
        }
        if looks_secret(name) {
            return Err(rules
                .refuse_key(&path, "variables are visible inside and in this file; this looks like a secret")
                .with_hint("declare it under `secrets` with a `ref` instead"));
        }
        if value.len() > MAX_TEXT || value.contains('\0') {
            return Err(
                rules.refuse(&path, format!("the value is longer than {MAX_TEXT} bytes or contains NUL"))
            );
        }
    }
    Ok(())
}

/// `GITHUB_TOKEN` and `token`, but not `TOKENIZER`.
fn looks_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    SECRET_ENDINGS.iter().any(|ending| {
        upper.strip_suffix(ending).is_some_and(|before| before.is_empty() || before.ends_with('_'))
    })
}

pub(super) fn mounts(rules: &Rules<'_>, mounts: &[Mount]) -> Result<()> {
    let list = Path::of(&["mounts"]);
    rules.bounded_list(&list, mounts.len())?;
    let mut targets: HashMap<&str, usize> = HashMap::new();
    for (index, mount) in mounts.iter().enumerate() {
        let source = list.item(index).key("source");
        rules.line(&source, &mount.source, "the source")?;
        if mount.source.len() > MAX_PATH || mount.source.split('/').any(|part| part == "..") {
            return Err(rules.refuse(&source, "it is too long or contains `..`"));
        }
        let target = list.item(index).key("target");
        check_target(&mount.target).map_err(|why| {
            rules
                .refuse(&target, format!("`{}` {why}", printable(&mount.target)))
                .with_hint("a target is an absolute path such as `/workspace/cache`")
        })?;
        if let Some(first) = targets.insert(&mount.target, index) {
            return Err(rules.refuse(&target, format!("`mounts[{first}]` has the same target")));
        }
    }
    Ok(())
}

fn check_target(target: &str) -> Result<(), String> {
    let Some(rest) = target.strip_prefix('/') else { return Err("is not an absolute path".into()) };
    if target.len() > MAX_PATH || target.chars().any(char::is_control) {
        return Err("is too long or has control characters".into());
    }
    if rest.is_empty() {
        return Err("is the root itself".into());
    }
    if rest.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err("is not normalised: no `.`, `..`, `//` or `/` at the end".into());
    }
    let inside =
        |top: &str| target.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    match RESERVED_TARGETS.iter().find(|top| inside(top)) {
        Some(top) => Err(format!("is in `{top}`, which belongs to the sandbox")),
        None => Ok(()),
    }
}

pub(super) fn setup(rules: &Rules<'_>, setup: &Setup) -> Result<()> {
    if setup.instructions.len() > MAX_TEXT || setup.instructions.contains('\0') {
        let path = Path::of(&["setup", "instructions"]);
        return Err(rules.refuse(&path, format!("longer than {MAX_TEXT} bytes or contains NUL")));
    }
    let path = Path::of(&["setup", "commands"]);
    if setup.commands.len() > MAX_LIST {
        return Err(rules.refuse(&path, format!("more than {MAX_LIST} commands")));
    }
    for (index, command) in setup.commands.iter().enumerate() {
        let path = path.item(index);
        if command.trim().is_empty() {
            return Err(rules.refuse(&path, "the command is empty"));
        }
        if command.len() > MAX_TEXT || command.contains('\0') {
            return Err(rules.refuse(&path, format!("longer than {MAX_TEXT} bytes or contains NUL")));
        }
    }
    Ok(())
}
