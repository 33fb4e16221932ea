//! What a tree holds, by content: the thing that two sides of a mirror are compared by.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The most bytes that a path in a manifest has.
const MAX_PATH_BYTES: usize = 4_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    File,
    Dir,
    Link,
}

/// One file, folder or link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub kind: Kind,
    /// Whether a file may be run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exec: bool,
    #[serde(default)]
    pub size: u64,
    /// Seconds; for people, not compared.
    #[serde(default)]
    pub mtime: i64,
    /// The SHA-256 of a file in hexadecimal; the target of a link.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content: String,
}

/// Equal in what counts. Times and sizes follow from other things.
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
            && (self.kind == Kind::Dir || (self.exec == other.exec && self.content == other.content))
    }
}

impl Eq for Entry {}

impl Entry {
    pub fn dir() -> Self {
        Self { kind: Kind::Dir, exec: false, size: 0, mtime: 0, content: String::new() }
    }

    pub fn file(content: impl Into<String>, exec: bool) -> Self {
        Self { kind: Kind::File, exec, size: 0, mtime: 0, content: content.into() }
    }

    pub fn link(target: impl Into<String>) -> Self {
        Self { kind: Kind::Link, exec: false, size: 0, mtime: 0, content: target.into() }
    }
}

/// Relative paths with `/` to what is there. Folders have entries of their own, so that empty ones count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Manifest(pub BTreeMap<String, Entry>);

impl Manifest {
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.0.get(path)
    }
}

/// Whether every tool on both sides can carry this path in a list of lines.
pub fn is_portable(path: &str) -> bool {
    !path.is_empty()
        && path.len() <= MAX_PATH_BYTES
        && !path.chars().any(|c| c.is_control() || c == '\\')
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Files of a repository that decide what git runs. A sandbox may have them and never changes them outside.
/// A `.git` that is no folder names the repository to use, and is protected like one.
pub fn is_protected(path: &str, kind: Kind) -> bool {
    let mut parts = path.split('/').skip_while(|part| !part.eq_ignore_ascii_case(".git"));
    if parts.next().is_none() {
        return false;
    }
    let below: Vec<&str> = parts.collect();
    let Some(last) = below.last() else { return kind != Kind::Dir };
    let names = ["config", "config.worktree", "commondir", "gitdir", "attributes"];
    names.iter().any(|name| last.eq_ignore_ascii_case(name))
        || below.iter().any(|part| part.eq_ignore_ascii_case("hooks"))
}

/// The folders that git would take for a repository although they are not called `.git`; the top is the empty path.
pub fn disguised(manifest: &Manifest) -> BTreeSet<String> {
    let has = |folder: &str, name: &str| {
        let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        manifest.0.contains_key(&path)
    };
    let heads = manifest.0.keys().filter_map(|path| match path.rsplit_once('/') {
        Some((folder, name)) => name.eq_ignore_ascii_case("HEAD").then_some(folder),
        None => path.eq_ignore_ascii_case("HEAD").then_some(""),
    });
    heads
        .filter(|folder| (has(folder, "objects") && has(folder, "refs")) || has(folder, "commondir"))
        .map(str::to_owned)
        .collect()
}

/// Whether the path decides what git runs in one of these folders.
pub fn is_protected_in(disguised: &BTreeSet<String>, path: &str, kind: Kind) -> bool {
    disguised.iter().any(|folder| {
        let below = if folder.is_empty() {
            Some(path)
        } else {
            path.strip_prefix(folder.as_str()).and_then(|rest| rest.strip_prefix('/'))
        };
        below.is_some_and(|below| is_protected(&format!(".git/{below}"), kind))
    })
}

/// The SHA-256 of what is read, in hexadecimal.
pub fn hash(mut from: impl Read) -> io::Result<String> {
    let (mut hasher, mut chunk) = (Sha256::new(), vec![0_u8; 64 << 10]);
    loop {
        match from.read(&mut chunk)? {
            0 => break,
            count => hasher.update(&chunk[..count]),
        }
    }
    Ok(hasher.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_of_another_name_is_one() {
        let entry = |kind| Entry { kind, exec: false, size: 0, mtime: 0, content: String::new() };
        let dir = || entry(Kind::Dir);
        let paths = [
            ("n/HEAD", entry(Kind::File)),
            ("n/objects", dir()),
            ("n/refs", dir()),
            ("n/config", entry(Kind::File)),
            ("m/HEAD", entry(Kind::File)),
            ("m/config", entry(Kind::File)),
        ];
        let manifest = Manifest(paths.into_iter().map(|(path, entry)| (path.to_owned(), entry)).collect());
        let found = disguised(&manifest);
        assert!(
            is_protected_in(&found, "n/config", Kind::File)
                && is_protected_in(&found, "n/hooks/x", Kind::File)
        );
        assert!(
            !is_protected_in(&found, "m/config", Kind::File)
                && !is_protected_in(&found, "n/objects/aa/b", Kind::File)
        );
    }

    #[test]
    fn what_git_runs_is_protected() {
        for path in [
            ".git/config",
            "sub/.git/hooks/x",
            ".git/modules/m/config",
            ".GIT/Config",
            ".git/info/attributes",
        ] {
            assert!(is_protected(path, Kind::File), "{path}");
        }
        for path in [".git", ".git/HEAD", ".git/objects/aa/bb", "config", "hooks/x", ".github/config"] {
            assert!(!is_protected(path, Kind::Dir), "{path}");
        }
        assert!(is_protected("sub/.git", Kind::File) && is_protected("sub/.git", Kind::Link));
    }

    #[test]
    fn only_plain_relative_paths_are_portable() {
        assert!(is_portable("a/b c/ü"));
        for path in ["", "/a", "a//b", "a/../b", "./a", "a\nb", "a\\b", "a/"] {
            assert!(!is_portable(path), "{path:?}");
        }
    }
}
