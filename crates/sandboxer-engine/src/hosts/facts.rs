//! Facts about a host: what its extensions say, merged section by section, and the tools on the engine's own machine.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use sandboxer_core::extension::Extension;
use sandboxer_core::host::{Host, HostSign};
use sandboxer_core::{Error, ErrorKind, Result};
use serde_json::{Map, Value, json};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::Engine;
use crate::placement::is_hosts_fault;
use crate::survey::can_use;

/// How long one extension may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a tool may take to tell its version.
const TOOL: Duration = Duration::from_secs(10);

/// Engines that sandboxes are made with, and how each tells its version.
const TOOLS: [(&str, &str, &[&str]); 6] = [
    ("docker_cli", "docker", &["--version"]),
    ("compose_v2", "docker", &["compose", "version", "--short"]),
    ("compose_v1", "docker-compose", &["version", "--short"]),
    ("qemu", "qemu-system-x86_64", &["--version"]),
    ("packer", "packer", &["version"]),
    ("runsc", "runsc", &["--version"]),
];

/// What several extensions may tell about the same machine, each as an object.
const SECTIONS: [&str; 8] = ["cpu", "memory", "disk", "kernel", "isolation", "engines", "foreign", "images"];

/// What was learned, and who could not say anything.
pub(crate) struct Facts {
    pub(crate) facts: Map<String, Value>,
    pub(crate) problems: Vec<String>,
    /// Nobody got an answer, and that is the host's fault.
    pub(crate) silent: bool,
}

impl Engine {
    /// Asks everybody who can use the host, at once, and remembers the answer.
    pub(crate) async fn host_facts(&self, host: &Host) -> Facts {
        let (mut asked, mut answers) = (JoinSet::new(), Vec::new());
        for (index, extension) in self.inner.registry.iter().enumerate() {
            let about = extension.describe();
            if can_use(&about.capability, host) {
                let (extension, name) = (extension.clone(), host.name.clone());
                asked.spawn(async move { (index, about.id, ask(&extension, &name).await) });
            }
        }
        let tools = if host.is_local() { tools().await } else { Map::new() };
        while let Some(done) = asked.join_next().await {
            match done {
                Ok(answer) => answers.push(answer),
                Err(error) => tracing::error!(%error, "an extension broke off"),
            }
        }
        answers.sort_by_key(|(index, ..)| *index);
        let mut out = Facts { facts: Map::new(), problems: Vec::new(), silent: false };
        let (mut told, mut faults) = (false, Vec::new());
        for (_, id, answer) in answers {
            match answer {
                Ok(Value::Object(more)) => {
                    told = true;
                    merge(&mut out.facts, sorted(&id, more));
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Unsupported => {}
                Err(error) => {
                    let problem = format!("{id}: {}", error.chain().join(": "));
                    out.problems.push(problem.clone());
                    if is_hosts_fault(&error) {
                        faults.push(problem);
                    }
                }
            }
        }
        if !tools.is_empty() {
            merge(&mut out.facts, Map::from_iter([("engines".to_owned(), Value::Object(tools))]));
        }
        out.silent = !told && !faults.is_empty() && !host.is_local();
        self.remember_facts(host, &out, faults).await;
        out
    }

    async fn remember_facts(&self, host: &Host, found: &Facts, mut faults: Vec<String>) {
        if host.is_local() {
            return;
        }
        let sign = match found.silent.then(|| faults.pop()).flatten() {
            Some(reason) => HostSign::Failed { reason },
            None if found.facts.is_empty() => return,
            None => HostSign::Answered { latency_ms: None },
        };
        let facts = (!found.facts.is_empty()).then(|| Value::Object(found.facts.clone()));
        let noted = self.inner.store.host_health(&host.name, &sign, facts.as_ref(), self.now()).await;
        if let Err(error) = noted {
            tracing::warn!(error = ?error, host = host.name, "the facts of a host could not be kept");
        }
    }
}

async fn ask(extension: &Arc<dyn Extension>, host: &str) -> Result<Value> {
    tokio::time::timeout(PATIENCE, extension.host_facts(host)).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Timeout, format!("no answer within {} s", PATIENCE.as_secs())))
    })
}

/// What everybody means the same by goes into its section; the rest stays below the extension's own name.
fn sorted(id: &str, facts: Map<String, Value>) -> Map<String, Value> {
    let is_common = |key: &str, value: &Value| match key {
        "uptime_seconds" => value.is_number(),
        key => SECTIONS.contains(&key) && (value.is_object() || value.is_null()),
    };
    let (mut out, mut own) = (Map::new(), Map::new());
    for (key, value) in facts {
        let to = if is_common(&key, &value) { &mut out } else { &mut own };
        to.insert(key, value);
    }
    if !own.is_empty() {
        out.insert("extensions".to_owned(), json!({ id: own }));
    }
    out
}

/// Sections of the same name become one; what was said first stays.
fn merge(into: &mut Map<String, Value>, more: Map<String, Value>) {
    for (key, value) in more {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(there)), Value::Object(new)) => merge(there, new),
            (Some(there), value) if there.is_null() => *there = value,
            (Some(_), _) => {}
            (None, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// The versions of what is installed here, and of ourselves.
async fn tools() -> Map<String, Value> {
    let mut asked = JoinSet::new();
    for (index, (name, program, args)) in TOOLS.into_iter().enumerate() {
        asked.spawn(async move { (index, name, version(program, args).await) });
    }
    let mut found = Vec::new();
    while let Some(done) = asked.join_next().await {
        if let Ok((index, name, Some(version))) = done {
            found.push((index, name, version));
        }
    }
    found.sort();
    let ours = [("sandboxer".to_owned(), json!({ "version": env!("CARGO_PKG_VERSION") }))];
    let tools = found.into_iter().map(|(_, name, version)| (name.to_owned(), json!({ "version": version })));
    ours.into_iter().chain(tools).collect()
}

/// The first line that a tool says about itself; nothing when it is not there or does not know the question.
async fn version(program: &str, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    // Packer asks its makers for a newer one otherwise.
    command.env("CHECKPOINT_DISABLE", "1");
    let output = tokio::time::timeout(TOOL, command.output()).await.ok()?.ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    output.status.success().then(|| line.chars().take(120).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_section_stays_with_its_extension() {
        let told = json!({ "kernel": "6.1", "cpu": { "count": 2 }, "uptime_seconds": 5, "colour": "red" });
        let sorted = sorted("ext.x", told.as_object().cloned().unwrap());
        assert_eq!(
            Value::Object(sorted),
            json!({
                "cpu": { "count": 2 },
                "uptime_seconds": 5,
                "extensions": { "ext.x": { "kernel": "6.1", "colour": "red" } }
            })
        );
    }

    #[test]
    fn sections_are_merged_and_the_first_word_stays() {
        let object = |value: Value| value.as_object().cloned().unwrap();
        let mut facts = object(json!({ "cpu": { "count": 2 }, "disk": null, "engines": { "a": 1 } }));
        merge(
            &mut facts,
            object(
                json!({ "cpu": { "count": 4, "model": "x" }, "disk": { "total_bytes": 1 }, "engines": { "b": 2 } }),
            ),
        );
        assert_eq!(
            Value::Object(facts),
            json!({ "cpu": { "count": 2, "model": "x" }, "disk": { "total_bytes": 1 }, "engines": { "a": 1, "b": 2 } })
        );
    }
}
