//! The catalog: every profile that is built in or lies in a folder, and which of them counts.
//!
//! Loading reads the files and no more than their names and versions; a profile is parsed and merged when somebody
//! asks for it. A broken file never takes the others down: it is reported for itself.

mod built_in;
pub(crate) mod folder;
mod scan;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sandboxer_core::profile::{Profile, ProfileFile, ProfileRef, Version, resolve};
use sandboxer_core::suggest::{nearest, printable};
use sandboxer_core::{Error, ErrorKind, Result};

use folder::{Found, Missing};

/// The longest chain of `extends`, the extending profile included.
const MAX_CHAIN: usize = 8;
/// What every id begins with.
const PREFIX: &str = "profile.";

/// The folders to read after the built-in profiles; later ones win.
#[derive(Clone, Debug, Default)]
pub struct CatalogSources {
    /// `profiles/` in the user's configuration.
    pub user: Option<PathBuf>,
    /// `.sandboxer/profiles/` of the working directory.
    pub project: Option<PathBuf>,
    /// `--profiles DIR`, in the order given. These must exist.
    pub extra: Vec<PathBuf>,
}

/// Where a definition came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    BuiltIn(&'static str),
    File(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn(_) => f.write_str("built-in"),
            Self::File(path) => f.write_str(&folder::shown(path)),
        }
    }
}

impl Origin {
    /// The name that errors begin with.
    fn source(&self) -> String {
        match self {
            Self::BuiltIn(name) => format!("built-in:{name}"),
            Self::File(path) => folder::shown(path),
        }
    }
}

/// A usable profile.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Merged with what it extends, defaults filled in, checked.
    pub profile: Profile,
    pub origin: Origin,
    /// Definitions of the same version that this one replaces, nearest first.
    pub shadows: Vec<Origin>,
    /// The file as it was written.
    pub text: Cow<'static, str>,
}

/// A file or folder that cannot be used, and why.
#[derive(Clone, Debug)]
pub struct Problem {
    pub origin: Origin,
    /// The profile that it would have been, where that much can be told.
    pub id: Option<String>,
    pub error: Error,
}

/// One definition; what it means is worked out at most once.
struct Slot {
    id: String,
    version: Version,
    origin: Origin,
    shadows: Vec<Origin>,
    text: Cow<'static, str>,
    file: OnceLock<Result<ProfileFile>>,
    entry: OnceLock<Result<Entry>>,
}

/// All profiles by id and version.
#[derive(Default)]
pub struct Catalog {
    slots: BTreeMap<(String, Version), Slot>,
    problems: Vec<Problem>,
}

impl Catalog {
    /// Reads the built-in profiles and the folders. Never fails: see [`Catalog::problems`].
    pub fn load(sources: &CatalogSources) -> Self {
        let mut catalog = Self::default();
        catalog.add_layer(
            built_in::FILES
                .iter()
                .map(|(name, text)| Found { origin: Origin::BuiltIn(name), text: Ok(Cow::Borrowed(*text)) }),
        );
        for path in sources.user.iter().chain(&sources.project) {
            catalog.add_layer(folder::read(path, Missing::IsFine));
        }
        for path in &sources.extra {
            catalog.add_layer(folder::read(path, Missing::IsAProblem));
        }
        tracing::debug!(profiles = catalog.slots.len(), problems = catalog.problems.len(), "catalog loaded");
        catalog
    }

    /// The profile of this name; `profile.x` means its newest version, `profile.x@1` the newest that begins so.
    pub fn get(&self, name: &str) -> Result<&Entry> {
        let wanted = match ProfileRef::parse(name) {
            Ok(wanted) => wanted,
            Err(error) => {
                let id = name.split('@').next().unwrap_or_default();
                return Err(if self.versions(id).next().is_some() { error } else { self.not_found(name) });
            }
        };
        let slot = self.newest(&wanted);
        let broken = self.problems.iter().find(|problem| problem.id.as_ref() == Some(&wanted.id));
        match (slot, broken) {
            // A file without a usable version might be the newest: rather its error than an older profile.
            (_, Some(problem)) if wanted.version.is_none() => Err(problem.error.clone()),
            (Some(slot), _) => self.entry(slot),
            (None, Some(problem)) => Err(problem.error.clone()),
            (None, None) => Err(self.not_found(name)),
        }
    }

    /// Every usable profile, by name and version.
    pub fn list(&self) -> Vec<&Entry> {
        self.slots.values().filter_map(|slot| self.entry(slot).ok()).collect()
    }

    /// Everything that cannot be used.
    pub fn problems(&self) -> Vec<Problem> {
        let unusable = self.slots.values().filter_map(|slot| {
            let error = self.entry(slot).err()?;
            Some(Problem { origin: slot.origin.clone(), id: Some(slot.id.clone()), error })
        });
        self.problems.iter().cloned().chain(unusable).collect()
    }

    /// The profile in one file, which need not be part of the catalog; what it extends must be.
    pub fn validate_file(&self, path: &Path) -> Result<Profile> {
        let text = folder::read_file(path)?;
        let file = ProfileFile::parse(&text, &folder::shown(path))?;
        self.resolve(&file)
    }

    fn add_layer(&mut self, files: impl IntoIterator<Item = Found>) {
        let mut in_this_layer: BTreeMap<(String, Version), Origin> = BTreeMap::new();
        for found in files {
            let slot = match found.text.and_then(|text| Slot::new(found.origin.clone(), text)) {
                Ok(slot) => slot,
                Err(error) => {
                    let id = error.context().iter().find(|(key, _)| *key == "profile");
                    let id = id.map(|(_, value)| value.clone());
                    self.problems.push(Problem { origin: found.origin, id, error });
                    continue;
                }
            };
            let key = (slot.id.clone(), slot.version);
            if let Some(first) = in_this_layer.get(&key) {
                let message =
                    format!("{}: {}@{} is already defined by {first}", slot.origin.source(), key.0, key.1);
                let error = Error::new(ErrorKind::InvalidProfile, message)
                    .with_hint("give one of them another `id` or `version`");
                self.problems.push(Problem { origin: slot.origin, id: None, error });
                continue;
            }
            in_this_layer.insert(key.clone(), slot.origin.clone());
            self.insert(key, slot);
        }
    }

    fn insert(&mut self, key: (String, Version), mut slot: Slot) {
        if let Some(below) = self.slots.remove(&key) {
            slot.shadows.push(below.origin);
            slot.shadows.extend(below.shadows);
        }
        self.slots.insert(key, slot);
    }

    fn versions(&self, id: &str) -> impl DoubleEndedIterator<Item = &Slot> {
        let first = (id.to_owned(), Version { major: 0, minor: 0, patch: 0 });
        let last = (id.to_owned(), Version { major: u32::MAX, minor: u32::MAX, patch: u32::MAX });
        self.slots.range(first..=last).map(|(_, slot)| slot)
    }

    fn newest(&self, wanted: &ProfileRef) -> Option<&Slot> {
        self.versions(&wanted.id).rev().find(|slot| wanted.matches(&slot.id, slot.version))
    }

    fn entry<'a>(&self, slot: &'a Slot) -> Result<&'a Entry> {
        let made = slot.entry.get_or_init(|| {
            Ok(Entry {
                profile: self.resolve(slot.file()?)?,
                origin: slot.origin.clone(),
                shadows: slot.shadows.clone(),
                text: slot.text.clone(),
            })
        });
        made.as_ref().map_err(Clone::clone)
    }

    /// Follows `extends` down to the base and merges the chain.
    fn resolve(&self, top: &ProfileFile) -> Result<Profile> {
        let mut chain = vec![top];
        let mut last = top;
        while let Some(wanted) = &last.extends {
            let base = self.newest(wanted).ok_or_else(|| {
                let error = last.refuse_extends(&format!("there is no profile `{wanted}` to extend"));
                error.with_hint(self.suggestion(&wanted.to_string()))
            })?;
            let base = base.file()?;
            if chain.iter().any(|file| file.id == base.id && file.version == base.version) {
                let way: Vec<String> =
                    chain.iter().map(|file| format!("{}@{}", file.id, file.version)).collect();
                return Err(last
                    .refuse_extends(&format!(
                        "a profile cannot extend itself: {} → {wanted}",
                        way.join(" → ")
                    ))
                    .with_hint("extend another id, or name an older version as in `profile.x@1.0.0`"));
            }
            if chain.len() == MAX_CHAIN {
                return Err(top
                    .refuse_extends(&format!("the chain of `extends` is longer than {MAX_CHAIN} profiles")));
            }
            chain.push(base);
            last = base;
        }
        resolve(chain.into_iter().rev())
    }

    fn not_found(&self, name: &str) -> Error {
        let (id, _) = name.split_once('@').unwrap_or((name, ""));
        let versions: Vec<String> = self.versions(id).map(|slot| slot.version.to_string()).collect();
        let message = format!("there is no profile `{}`", printable(name));
        let error = Error::new(ErrorKind::ProfileNotFound, message).with_context("profile", printable(name));
        if versions.is_empty() {
            error.with_hint(self.suggestion(name))
        } else {
            error.with_hint(format!("its versions are {}", versions.join(", ")))
        }
    }

    fn suggestion<'a>(&'a self, name: &'a str) -> String {
        let (id, _) = name.split_once('@').unwrap_or((name, ""));
        // Without the prefix that all share, which would make strangers look alike.
        let bare = |id: &'a str| id.strip_prefix(PREFIX).unwrap_or(id);
        nearest(bare(id), self.slots.keys().map(|(id, _)| bare(id)))
            .map(|name| format!("did you mean `{PREFIX}{name}`?"))
            .unwrap_or_else(|| "`sandboxer profiles list` shows what there is".to_owned())
    }
}

impl Slot {
    /// Finds out which profile `text` is, by a look at its lines or, failing that, by parsing it.
    fn new(origin: Origin, text: Cow<'static, str>) -> Result<Self> {
        let file = OnceLock::new();
        let (id, version) = match scan::name(&text) {
            Some(name) => name,
            None => {
                let parsed =
                    ProfileFile::parse(&text, &origin.source()).map_err(|error| match scan::id(&text) {
                        Some(id) => error.with_context("profile", id),
                        None => error,
                    })?;
                let name = (parsed.id.clone(), parsed.version);
                let _ = file.set(Ok(parsed));
                name
            }
        };
        Ok(Self { id, version, origin, shadows: Vec::new(), text, file, entry: OnceLock::new() })
    }

    fn file(&self) -> Result<&ProfileFile> {
        let parsed = self.file.get_or_init(|| {
            let file = ProfileFile::parse(&self.text, &self.origin.source())?;
            if (&file.id, file.version) == (&self.id, self.version) {
                return Ok(file);
            }
            let message =
                format!("{}: `id` and `version` must stand on lines of their own", self.origin.source());
            Err(Error::new(ErrorKind::InvalidProfile, message))
        });
        parsed.as_ref().map_err(Clone::clone)
    }
}

#[cfg(test)]
mod tests;
