//! The manifest: what an extension in a process of its own is called, what it declares and how it is started.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sandboxer_core::capability::Capability;
use sandboxer_core::exec::is_env_name;
use sandboxer_core::extension::Description;
use sandboxer_core::suggest::{did_you_mean, printable};
use sandboxer_core::{Dur, Error, ErrorKind, Result};
use serde::Deserialize;
use serde_saphyr::{Location, Spanned};

/// No manifest needs more.
pub(crate) const MAX_BYTES: u64 = 64 << 10;
const MAX_MESSAGE: std::ops::RangeInclusive<usize> = (64 << 10)..=(64 << 20);
const DEFAULT_MESSAGE: usize = 4 << 20;

/// A checked manifest.
#[derive(Clone, Debug)]
pub struct Manifest {
    pub id: String,
    pub summary: String,
    pub pricing: String,
    pub configuration: BTreeMap<String, String>,
    pub capability: Capability,
    /// The executable and its arguments; a relative path is looked for beside the manifest.
    pub command: Vec<String>,
    /// Names of variables that are passed on, beside `PATH`, `HOME` and `LANG`.
    pub env: Vec<String>,
    pub timeouts: Timeouts,
    /// The longest line that the process may write.
    pub max_message_bytes: usize,
    /// Where it was found.
    pub file: PathBuf,
}

/// How long the process may take for an answer.
#[derive(Clone, Debug)]
pub struct Timeouts {
    pub default: Dur,
    /// From the start of the process to its first answer.
    pub start: Dur,
    pub provision: Dur,
    pub teardown: Dur,
    /// A snapshot, and its deletion.
    pub snapshot: Dur,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    kind: Spanned<String>,
    id: Spanned<String>,
    summary: String,
    #[serde(default)]
    pricing: Option<Spanned<String>>,
    #[serde(default)]
    configuration: BTreeMap<String, String>,
    capability: Pairs<Value>,
    command: Spanned<Vec<String>>,
    #[serde(default)]
    env: Vec<Spanned<String>>,
    #[serde(default)]
    timeouts: Pairs<String>,
    #[serde(default)]
    max_message_bytes: Option<Spanned<usize>>,
}

/// A mapping whose keys remember their places.
struct Pairs<V>(Vec<(Spanned<String>, Spanned<V>)>);

impl<V> Default for Pairs<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Visitor<V>(std::marker::PhantomData<V>);
        impl<'de, V: Deserialize<'de>> serde::de::Visitor<'de> for Visitor<V> {
            type Value = Pairs<V>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Pairs<V>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Visitor(std::marker::PhantomData))
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Value {
    Flag(bool),
    Word(String),
}

impl Manifest {
    /// Reads and checks one file. Nothing that somebody else may write is trusted with naming an executable.
    pub fn read(file: &Path) -> Result<Self> {
        let name = file.display().to_string();
        let unreadable = |source| {
            Error::new(ErrorKind::InvalidInput, format!("{name} cannot be read")).with_source(source)
        };
        let about = std::fs::metadata(file).map_err(unreadable)?;
        if about.len() > MAX_BYTES {
            return Err(refuse(&name, None, format!("it is larger than {MAX_BYTES} bytes")));
        }
        let own = rustix::process::geteuid().as_raw();
        if about.mode() & 0o002 != 0 || (about.uid() != own && about.uid() != 0) {
            return Err(refuse(&name, None, "somebody else may write it, so it may not name a command")
                .with_hint(format!("make it your own and run `chmod o-w {name}`")));
        }
        let text = std::fs::read_to_string(file).map_err(unreadable)?;
        Self::parse(&text, file)
    }

    /// Checks the text of a manifest; every complaint has its line and column.
    pub fn parse(text: &str, file: &Path) -> Result<Self> {
        let name = file.display().to_string();
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! { max_depth: 8, max_nodes: 2_000, max_documents: 1 },
            strict_booleans: true,
            with_snippet: false,
        };
        let parsed: File = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let words = error.without_snippet().to_string().replace(char::is_control, " ");
            refuse(&name, error.location(), words)
        })?;
        check(parsed, &name, file)
    }

    /// What the extension is, without asking its process.
    pub fn description(&self) -> Description {
        Description {
            id: self.id.clone(),
            summary: self.summary.clone(),
            capability: self.capability.clone(),
            pricing: self.pricing.clone(),
            configuration: self.configuration.clone(),
        }
    }
}

fn refuse(name: &str, place: Option<Location>, why: impl std::fmt::Display) -> Error {
    let place = place.filter(|place| place.line() > 0);
    let at = place.map(|place| format!("{name}:{}:{}", place.line(), place.column()));
    Error::new(ErrorKind::InvalidInput, format!("{}: {why}", at.unwrap_or_else(|| name.to_owned())))
        .with_context("file", name)
        .with_hint("docs/extension-sdk.md has the keys of a manifest and an example")
}

fn check(file: File, name: &str, path: &Path) -> Result<Manifest> {
    let at = |location: Location, why: String| Err(refuse(name, Some(location), why));
    if file.kind.value != "extension" {
        return at(file.kind.defined, format!("`{}` is not `extension`", printable(&file.kind.value)));
    }
    let short = file.id.value.strip_prefix("ext.").unwrap_or_default();
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if short.is_empty() || short.len() > 60 || !short.chars().all(valid) {
        return at(
            file.id.defined,
            format!("`{}` is not an id like `ext.example`", printable(&file.id.value)),
        );
    }
    let pricing = file.pricing.unwrap_or(Spanned {
        value: "self-hosted".to_owned(),
        referenced: Location::UNKNOWN,
        defined: Location::UNKNOWN,
    });
    if !["self-hosted", "metered"].contains(&pricing.value.as_str()) {
        return at(pricing.defined, "the pricing is `self-hosted` or `metered`".into());
    }
    if file.command.value.first().is_none_or(String::is_empty) {
        return at(file.command.defined, "the command is empty".into());
    }
    if let Some(wrong) = file.env.iter().find(|name| !is_env_name(&name.value)) {
        return at(wrong.defined, format!("`{}` is not a variable name", printable(&wrong.value)));
    }
    let max = file.max_message_bytes;
    if let Some(wrong) = max.as_ref().filter(|max| !MAX_MESSAGE.contains(&max.value)) {
        let (least, most) = (MAX_MESSAGE.start(), MAX_MESSAGE.end());
        return at(wrong.defined, format!("max_message_bytes is from {least} to {most}"));
    }
    Ok(Manifest {
        capability: capability(file.capability, name)?,
        timeouts: timeouts(file.timeouts, name)?,
        id: file.id.value,
        summary: file.summary,
        pricing: pricing.value,
        configuration: file.configuration,
        command: file.command.value,
        env: file.env.into_iter().map(|name| name.value).collect(),
        max_message_bytes: max.map_or(DEFAULT_MESSAGE, |max| max.value),
        file: path.to_owned(),
    })
}

/// What is named is declared, the rest is not.
fn capability(given: Pairs<Value>, name: &str) -> Result<Capability> {
    let broken = |why: serde_json::Error| refuse(name, None, why);
    let mut whole = serde_json::to_value(Capability::default()).map_err(broken)?;
    for (key, value) in given.0 {
        let known: Vec<String> =
            whole.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
        let Some(field) = whole.get_mut(&key.value) else {
            let error = refuse(
                name,
                Some(key.defined),
                format!("there is no capability `{}`", printable(&key.value)),
            );
            return Err(match did_you_mean(&key.value, known.iter().map(String::as_str)) {
                Some(hint) => error.with_hint(hint),
                None => error,
            });
        };
        *field = match (&value.value, field.is_boolean()) {
            (Value::Flag(flag), true) => serde_json::Value::Bool(*flag),
            (Value::Word(word), false) => serde_json::Value::String(word.clone()),
            _ => return Err(refuse(name, Some(value.defined), format!("`{}` has another type", key.value))),
        };
    }
    serde_json::from_value(whole).map_err(|why| refuse(name, None, format!("capability: {why}")))
}

fn timeouts(given: Pairs<String>, name: &str) -> Result<Timeouts> {
    let mut out = Timeouts {
        default: Dur::from_secs(30),
        start: Dur::from_secs(20),
        provision: Dur::from_secs(120),
        teardown: Dur::from_secs(60),
        snapshot: Dur::from_secs(120),
    };
    for (key, value) in given.0 {
        let target = match key.value.as_str() {
            "default" => &mut out.default,
            "start" => &mut out.start,
            "provision" => &mut out.provision,
            "teardown" => &mut out.teardown,
            "snapshot" => &mut out.snapshot,
            other => {
                let why = format!("there is no time-out `{}`", printable(other));
                return Err(refuse(name, Some(key.defined), why));
            }
        };
        *target = value.value.parse().map_err(|error: Error| refuse(name, Some(value.defined), error))?;
        if *target == Dur::ZERO {
            return Err(refuse(name, Some(value.defined), "a time-out of zero leaves no time for an answer"));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
