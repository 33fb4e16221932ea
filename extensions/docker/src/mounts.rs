//! Which host paths may be mounted into a container, and where.
//!
//! The rules are those of the native runtime: a source is checked as it is written and as it resolves through the
//! deepest ancestor that exists, and must be neither below nor above anything blocked. The engine gets the resolved path.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use sandboxer_core::profile::{Mount, MountAccess};
use sandboxer_core::{Error, ErrorKind, Result};

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
    ".gem",
    ".git-credentials",
    ".gnupg",
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
/// Inside, what the image, the engine and we provide must stay as it is.
const RESERVED_TARGETS: &[&str] = &[
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/workspace",
    "/tmp",
    "/var",
];
const MAX_PATH: usize = 4_095;

/// The blocked paths of this host.
#[derive(Debug)]
pub(crate) struct Blocklist {
    blocked: BTreeSet<PathBuf>,
    blocked_writable: BTreeSet<PathBuf>,
    homes: BTreeSet<PathBuf>,
}

impl Blocklist {
    /// With our own state and the engine's socket.
    pub(crate) fn of_host(own: &[&Path]) -> Self {
        let mut homes: BTreeSet<PathBuf> = BTreeSet::new();
        for line in std::fs::read("/etc/passwd").unwrap_or_default().split(|byte| *byte == b'\n') {
            homes.extend(
                line.split(|byte| *byte == b':').nth(5).map(|home| PathBuf::from(OsStr::from_bytes(home))),
            );
        }
        if let Ok(entries) = std::fs::read_dir("/home") {
            homes.extend(entries.flatten().map(|entry| entry.path()));
        }
        homes.extend(std::env::var_os("HOME").map(PathBuf::from));
        let homes: BTreeSet<PathBuf> = homes
            .into_iter()
            .filter(|home| home.is_absolute() && home.components().count() > 1)
            .flat_map(|home| [resolve(&home), home])
            .collect();
        let mut blocked: BTreeSet<PathBuf> = BLOCKED.iter().map(PathBuf::from).collect();
        blocked.extend(own.iter().map(|path| path.to_path_buf()));
        for home in &homes {
            blocked.extend(BLOCKED_IN_HOME.iter().map(|name| home.join(name)));
        }
        // A blocked path that is a link blocks what it leads to as well.
        let resolved: Vec<PathBuf> = blocked.iter().map(|path| resolve(path)).collect();
        blocked.extend(resolved);
        let writable = BLOCKED_WRITABLE.iter().map(PathBuf::from);
        Self { blocked, blocked_writable: writable.flat_map(|path| [resolve(&path), path]).collect(), homes }
    }

    fn check(&self, path: &Path, read_only: bool) -> Result<(), String> {
        if path == Path::new("/") {
            return Err("it is the whole host".into());
        }
        if let Some(name) = path.file_name().and_then(OsStr::to_str)
            && BLOCKED_NAMES.contains(&name)
        {
            return Err(format!("`{name}` controls the host"));
        }
        let holds_home = |home: &&PathBuf| home.starts_with(path) && home.starts_with("/home");
        if let Some(home) = self.homes.iter().find(holds_home) {
            return Err(format!("it is or contains the home `{}`; mount a folder in it", home.display()));
        }
        if path == Path::new("/home") {
            return Err("it contains every home".into());
        }
        let system = self.blocked_writable.iter().find(|system| path.starts_with(system));
        if let Some(system) = system.filter(|_| !read_only) {
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
pub(crate) fn validate(mounts: &[Mount], blocklist: &Blocklist) -> Result<Vec<String>> {
    let mut targets = BTreeSet::new();
    let mut sources = Vec::with_capacity(mounts.len());
    for mount in mounts {
        if !targets.insert(validate_target(Path::new(&mount.target))?) {
            return Err(refused(Path::new(&mount.target), "target", "it is used twice"));
        }
        let source = validate_source(Path::new(&mount.source), mount.access == MountAccess::Ro, blocklist)?;
        let Some(source) = source.to_str().map(str::to_owned) else {
            return Err(refused(&source, "source", "its name is not text"));
        };
        sources.push(source);
    }
    Ok(sources)
}

fn validate_source(source: &Path, read_only: bool, blocklist: &Blocklist) -> Result<PathBuf> {
    well_formed(source, "source")?;
    let lexical = normalise(source);
    blocklist.check(&lexical, read_only).map_err(|reason| refused(source, "source", &reason))?;
    let resolved = resolve(&lexical);
    blocklist.check(&resolved, read_only).map_err(|reason| {
        refused(source, "source", &format!("it leads to `{}`: {reason}", resolved.display()))
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
    // Below the workspace and the temporary folders is fine; in their place is not.
    let open = ["/workspace", "/tmp", "/var"];
    let reserved = RESERVED_TARGETS.iter().any(|reserved| {
        normalised == Path::new(reserved) || normalised.starts_with(reserved) && !open.contains(reserved)
    });
    if reserved || normalised == Path::new("/") || normalised == Path::new("/var/tmp") {
        return Err(refused(target, "target", "the sandbox needs it as it is"));
    }
    Ok(normalised)
}

fn well_formed(path: &Path, which: &str) -> Result<()> {
    let bytes = path.as_os_str().as_bytes();
    if !path.is_absolute() {
        return Err(refused(path, which, "it is not an absolute path"));
    }
    if bytes.len() > MAX_PATH || bytes.contains(&0) {
        return Err(refused(path, which, "it is too long or contains a NUL byte"));
    }
    Ok(())
}

fn refused(path: &Path, which: &str, reason: &str) -> Error {
    Error::new(ErrorKind::MountRefused, format!("mount {which} `{}` is refused: {reason}", path.display()))
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
