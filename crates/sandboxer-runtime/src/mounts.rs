//! Which host paths may be mounted into a sandbox, and where.
//!
//! A source is checked twice: as it is written, normalised without looking at the disk, and as it
//! resolves through the deepest ancestor that exists. Both must be clear of every blocked path, which
//! means neither below one nor above one. What comes back is the resolved path, to be opened without links.

use crate::error::{ErrorKind, Result, RuntimeError};
use crate::spec::{MAX_PATH_BYTES, Mount};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// Trees of the host that no sandbox may see.
const BLOCKED: &[&str] = &["/etc", "/proc", "/sys", "/dev", "/root", "/boot", "/run", "/var"];
/// Trees whose programs the host runs: never writable from inside.
const BLOCKED_WRITABLE: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/srv", "/nix", "/snap"];
/// Control sockets of container engines, wherever they are.
const BLOCKED_NAMES: &[&str] =
    &["docker.sock", "containerd.sock", "podman.sock", "crio.sock", "buildkitd.sock"];
/// Below every home: keys, tokens and the configuration that holds them.
const BLOCKED_IN_HOME: &[&str] = &[
    ".aws",
    ".azure",
    ".bash_history",
    ".cargo",
    ".claude",
    ".codex",
    ".config",
    ".docker",
    ".env",
    ".git-credentials",
    ".gnupg",
    ".gem",
    ".hermes",
    ".kube",
    ".local/share/keyrings",
    ".mozilla",
    ".netrc",
    ".npm",
    ".npmrc",
    ".openclaw",
    ".password-store",
    ".pgpass",
    ".pypirc",
    ".ssh",
    ".subversion",
    ".terraform.d",
    ".thunderbird",
    ".vault-token",
    ".yarnrc",
    ".zsh_history",
];
/// Inside, what the runtime itself provides must stay as it is.
const RESERVED_TARGETS: &[&str] = &[
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys", "/usr",
];

/// The paths of this host that are blocked; made once and used for many mounts.
#[derive(Debug, Clone)]
pub struct Blocklist {
    blocked: BTreeSet<PathBuf>,
    blocked_writable: BTreeSet<PathBuf>,
    /// A home as a whole has what its owner runs at the next login; folders in it are fine.
    homes: BTreeSet<PathBuf>,
}

impl Blocklist {
    /// The blocked paths of this host, with the runtime's own state directory.
    pub fn of_host(state_dir: &Path) -> Self {
        let mut homes: BTreeSet<PathBuf> = BTreeSet::new();
        let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
        for line in passwd.split(|b| *b == b'\n') {
            if let Some(home) = line.split(|b| *b == b':').nth(5) {
                homes.insert(PathBuf::from(OsStr::from_bytes(home)));
            }
        }
        if let Ok(entries) = std::fs::read_dir("/home") {
            homes.extend(entries.flatten().map(|entry| entry.path()));
        }
        homes.extend(std::env::var_os("HOME").map(PathBuf::from));
        Self::new(homes, state_dir)
    }

    /// The blocked paths for the given homes.
    pub fn new(homes: impl IntoIterator<Item = PathBuf>, state_dir: &Path) -> Self {
        let mut blocked: BTreeSet<PathBuf> = BLOCKED.iter().map(PathBuf::from).collect();
        blocked.insert(state_dir.to_owned());
        let homes = homes.into_iter().filter(|home| home.is_absolute() && home.components().count() > 1);
        let homes: BTreeSet<PathBuf> = homes.flat_map(|home| [resolve(&home), home]).collect();
        for home in &homes {
            blocked.extend(BLOCKED_IN_HOME.iter().map(|name| home.join(name)));
        }
        // A blocked path that is a link blocks what it leads to as well.
        let resolved: Vec<PathBuf> = blocked.iter().map(|path| resolve(path)).collect();
        blocked.extend(resolved);
        let blocked_writable = BLOCKED_WRITABLE.iter().map(PathBuf::from);
        let blocked_writable = blocked_writable.flat_map(|path| [resolve(&path), path]).collect();
        Self { blocked, blocked_writable, homes }
    }

    fn check(&self, path: &Path, read_only: bool) -> std::result::Result<(), String> {
        if path == Path::new("/") {
            return Err("it is the whole host".to_owned());
        }
        if let Some(name) = path.file_name().and_then(OsStr::to_str)
            && BLOCKED_NAMES.contains(&name)
        {
            return Err(format!("`{name}` controls the host"));
        }
        // Accounts of the system live below folders that are fine or blocked for themselves.
        let holds_home = |home: &&PathBuf| home.starts_with(path) && home.starts_with("/home");
        if let Some(home) = self.homes.iter().find(holds_home) {
            return Err(format!("it is or contains the home `{}`; mount a folder in it", home.display()));
        }
        if path == Path::new("/home") {
            return Err("it contains every home".to_owned());
        }
        if !read_only
            && let Some(system) = self.blocked_writable.iter().find(|system| path.starts_with(system))
        {
            return Err(format!("`{}` is the system's and may only be mounted read-only", system.display()));
        }
        for blocked in &self.blocked {
            if path.starts_with(blocked) {
                return Err(format!("`{}` is blocked", blocked.display()));
            }
            // Something that does not exist cannot be uncovered, and blocks no home for its sake.
            if blocked.starts_with(path) && blocked.symlink_metadata().is_ok() {
                return Err(format!("it contains `{}`, which is blocked", blocked.display()));
            }
        }
        Ok(())
    }
}

/// Checks sources and targets; gives the resolved sources, in the same order.
pub fn validate(mounts: &[Mount], blocklist: &Blocklist) -> Result<Vec<PathBuf>> {
    let mut targets: BTreeSet<PathBuf> = BTreeSet::new();
    let mut sources = Vec::with_capacity(mounts.len());
    for mount in mounts {
        let target = validate_target(&mount.target)?;
        if !targets.insert(target) {
            return Err(refused(&mount.target, "target", "it is used twice"));
        }
        sources.push(validate_source(&mount.source, mount.read_only, blocklist)?);
    }
    Ok(sources)
}

/// Checks one source and resolves it.
pub fn validate_source(source: &Path, read_only: bool, blocklist: &Blocklist) -> Result<PathBuf> {
    well_formed(source, "source")?;
    let lexical = normalise(source);
    blocklist.check(&lexical, read_only).map_err(|reason| refused(source, "source", &reason))?;
    let resolved = resolve(&lexical);
    blocklist.check(&resolved, read_only).map_err(|reason| {
        let reason = if resolved == lexical {
            reason
        } else {
            format!("it leads to `{}`: {reason}", resolved.display())
        };
        refused(source, "source", &reason)
    })?;
    if resolved.symlink_metadata().is_err() {
        return Err(refused(source, "source", "it does not exist"));
    }
    Ok(resolved)
}

fn validate_target(target: &Path) -> Result<PathBuf> {
    well_formed(target, "target")?;
    let normalised = normalise(target);
    if normalised.as_os_str() != target.as_os_str() {
        return Err(refused(target, "target", "it is not normalised (no `.`, `..`, `//` or trailing `/`)"));
    }
    if normalised == Path::new("/")
        || RESERVED_TARGETS.iter().any(|reserved| normalised.starts_with(reserved))
    {
        return Err(refused(target, "target", "the runtime provides it"));
    }
    Ok(normalised)
}

fn well_formed(path: &Path, which: &str) -> Result<()> {
    let bytes = path.as_os_str().as_bytes();
    if !path.is_absolute() {
        return Err(refused(path, which, "it is not an absolute path"));
    }
    if bytes.len() > MAX_PATH_BYTES || bytes.contains(&0) {
        return Err(refused(path, which, "it is too long or contains a NUL byte"));
    }
    Ok(())
}

fn refused(path: &Path, which: &str, reason: &str) -> RuntimeError {
    let message = format!("mount {which} `{}` is refused: {reason}", path.display());
    RuntimeError::new(ErrorKind::Refused, "validate_mounts", message)
        .with_hint("mount a directory made for the sandbox, outside of system paths and credential folders")
}

/// Removes `.`, `..` and doubled separators without looking at the disk.
fn normalise(path: &Path) -> PathBuf {
    let mut normalised = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::ParentDir => {
                normalised.pop();
            }
            Component::Normal(name) => normalised.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    normalised
}

/// Resolves links through the deepest ancestor that exists and keeps the rest as it is.
fn resolve(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let Ok(real) = ancestor.canonicalize() {
            let rest = path.strip_prefix(ancestor).unwrap_or(Path::new(""));
            return if rest.as_os_str().is_empty() { real } else { normalise(&real.join(rest)) };
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests;
