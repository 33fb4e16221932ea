//! The ignore files of a folder, read while it is walked, and the question whether a path belongs to the workspace.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::fd;
use crate::rules::Rules;

/// Our own unfinished files; never part of a workspace.
pub(crate) const UNFINISHED: &str = ".sandboxer-tmp-";
/// The longest ignore file that is read.
const MAX_IGNORE_BYTES: u64 = 1 << 20;

/// Names that usually mean credentials. `.sandboxerignore` can take one along with `!`.
const SECRETS: &str = "\
.env
.env.*
!.env.example
!.env.sample
!.env.template
.envrc
*.pem
*.key
*.p12
*.pfx
*.keystore
*.jks
*.kdbx
id_rsa
id_dsa
id_ecdsa
id_ed25519
.netrc
.npmrc
.pypirc
.pgpass
.htpasswd
.git-credentials
.vault-token
.ssh/
.gnupg/
.aws/
.azure/
.kube/
.config/gcloud/
.docker/config.json
credentials.json
service-account*.json
";

/// Ignore files by the folder that they are in.
#[derive(Clone, Debug)]
pub struct IgnoreSet {
    gitignore: bool,
    git: bool,
    secrets: Option<Gitignore>,
    extra: Gitignore,
    docker: Option<Gitignore>,
    dockerignore: bool,
    own: BTreeMap<PathBuf, Gitignore>,
    of_git: BTreeMap<PathBuf, Gitignore>,
}

impl IgnoreSet {
    /// Only what applies without any ignore file.
    pub fn new(rules: &Rules) -> Self {
        Self {
            gitignore: rules.gitignore,
            git: rules.git,
            secrets: (!rules.secrets).then(|| build(SECRETS.lines())),
            extra: build(rules.extra.iter().map(String::as_str)),
            docker: None,
            dockerignore: rules.dockerignore,
            own: BTreeMap::new(),
            of_git: BTreeMap::new(),
        }
    }

    /// Reads the ignore files of one folder; `at` is its path from the top.
    pub(crate) fn read(&mut self, dir: BorrowedFd<'_>, at: &Path) {
        if let Some(text) = text_of(dir, c".sandboxerignore") {
            self.own.insert(at.to_owned(), build(text.lines()));
        }
        if self.gitignore
            && let Some(text) = text_of(dir, c".gitignore")
        {
            self.of_git.insert(at.to_owned(), build(text.lines()));
        }
        if self.dockerignore
            && at.as_os_str().is_empty()
            && let Some(text) = text_of(dir, c".dockerignore")
        {
            let lines: Vec<String> = text.lines().map(docker_line).collect();
            self.docker = Some(build(lines.iter().map(String::as_str)));
        }
    }

    /// Whether the path, or a folder above it, is left out.
    pub fn ignores(&self, path: &Path, is_dir: bool) -> bool {
        let mut above = PathBuf::new();
        let mut parts = path.components().peekable();
        while let Some(part) = parts.next() {
            above.push(part);
            if self.ignores_here(&above, is_dir || parts.peek().is_some()) {
                return true;
            }
        }
        false
    }

    /// The same for a path whose folder is known to be taken.
    pub(crate) fn ignores_here(&self, path: &Path, is_dir: bool) -> bool {
        if self.never(path) {
            return true;
        }
        let own = nearest(&self.own, path, is_dir);
        if let Some(decided) = own.or_else(|| verdict(&self.extra, path, is_dir)) {
            return decided;
        }
        if self.secrets.as_ref().and_then(|secrets| verdict(secrets, path, is_dir)).unwrap_or(false) {
            return true;
        }
        if in_git(path) {
            return false;
        }
        if let Some(decided) = nearest(&self.of_git, path, is_dir) {
            return decided;
        }
        self.docker.as_ref().is_some_and(|docker| {
            // Docker goes on below an ignored folder if some pattern takes a part of it back.
            if is_dir && docker.num_whitelists() > 0 {
                return false;
            }
            matches!(docker.matched_path_or_any_parents(path, is_dir), Match::Ignore(_))
        })
    }

    /// What no ignore file can take back.
    fn never(&self, path: &Path) -> bool {
        let parts: Vec<_> = path.iter().collect();
        if parts.last().is_some_and(|name| name.to_string_lossy().starts_with(UNFINISHED)) {
            return true;
        }
        match parts.iter().position(|name| name.eq_ignore_ascii_case(".git")) {
            None => false,
            Some(_) if !self.git => true,
            Some(at) => parts[at + 1..].iter().any(|name| name.eq_ignore_ascii_case("hooks")),
        }
    }
}

fn in_git(path: &Path) -> bool {
    path.iter().any(|name| name.eq_ignore_ascii_case(".git"))
}

/// The word of the ignore file closest to the path, if any has one.
fn nearest(files: &BTreeMap<PathBuf, Gitignore>, path: &Path, is_dir: bool) -> Option<bool> {
    if files.is_empty() {
        return None;
    }
    path.ancestors().skip(1).find_map(|folder| {
        let file = files.get(folder)?;
        verdict(file, path.strip_prefix(folder).ok()?, is_dir)
    })
}

fn verdict(file: &Gitignore, path: &Path, is_dir: bool) -> Option<bool> {
    match file.matched(path, is_dir) {
        Match::None => None,
        Match::Ignore(_) => Some(true),
        Match::Whitelist(_) => Some(false),
    }
}

/// A line that is no pattern is passed over, as git does.
fn build<'a>(lines: impl Iterator<Item = &'a str>) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    for line in lines {
        let _ = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// Docker's patterns begin at the top; git's without a slash are found anywhere.
fn docker_line(line: &str) -> String {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return String::new();
    }
    let (not, pattern) = match line.strip_prefix('!') {
        Some(rest) => ("!", rest.trim()),
        None => ("", line),
    };
    let pattern = pattern.trim_start_matches("./").trim_matches('/');
    format!("{not}/{pattern}")
}

fn text_of(dir: BorrowedFd<'_>, name: &std::ffi::CStr) -> Option<String> {
    let (file, _) = fd::open_file(dir, name).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_IGNORE_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests;
