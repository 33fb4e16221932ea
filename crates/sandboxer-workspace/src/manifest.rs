//! What a tree holds, by content: the thing that two sides of a mirror are compared by.

use std::collections::BTreeMap;
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
