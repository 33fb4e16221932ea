//! Which folder a workspace may start with, and who may name one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use sandboxer_core::profile::WorkspaceAccess;
use sandboxer_core::{Error, ErrorKind, Result};

use crate::caller::Action;
use crate::{Caller, Engine, Plan};

/// Trees of the machine that are no workspace: neither they, nor what is in them, nor what contains them.
const BLOCKED: &[&str] = &[
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys",
    "/usr", "/var",
];
/// Within the blocked ones, where people do work.
const ALLOWED: &[&str] = &["/usr/src", "/usr/local/src", "/var/tmp", "/var/www", "/var/lib/jenkins"];
/// Below every home: keys, tokens and the configuration that holds them.
const BLOCKED_IN_HOME: &[&str] = &[
    ".aws",
    ".azure",
    ".cargo",
    ".claude",
    ".codex",
    ".config",
    ".docker",
    ".gem",
    ".gnupg",
    ".hermes",
    ".kube",
    ".local",
    ".mozilla",
    ".npm",
    ".openclaw",
    ".password-store",
    ".ssh",
    ".subversion",
    ".terraform.d",
    ".thunderbird",
];

impl Engine {
    /// Checks and resolves the source that a request names. What comes back is what will be read.
    pub(crate) fn checked_source(&self, caller: &Caller, plan: &Plan) -> Result<Option<String>> {
        let spec = &plan.spec;
        let Some(source) = &spec.workspace_source else { return Ok(None) };
        caller.require(Action::ReadFolders).map_err(|error| {
            Error::new(
                ErrorKind::Denied,
                "only an operator may name a folder of the server's machine as a source",
            )
            .with_hint("send the files with `PUT …/archive`, or use a key of actor type `adm`")
            .with_source(error)
        })?;
        if plan.from.is_some() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a snapshot has its workspace's content already",
            )
            .with_hint("leave out the source; `sandboxer cp` adds files to a sandbox"));
        }
        if spec.workspace.access == WorkspaceAccess::None {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "`access: none` gives no workspace, so it has no source",
            )
            .with_hint("leave out the source, or ask for `ro` or `rw`"));
        }
        let places = self.places()?;
        let resolved = resolve(Path::new(source), &places.home, &homes())?;
        resolved.into_os_string().into_string().map(Some).map_err(|_| {
            Error::new(ErrorKind::InvalidInput, "the path of the workspace's source is not valid UTF-8")
        })
    }
}

/// The folder with every link resolved, if it may be a workspace.
fn resolve(source: &Path, state: &Path, homes: &[PathBuf]) -> Result<PathBuf> {
    let refused = |kind, why: String| {
        Error::new(kind, format!("{} cannot be a workspace: {why}", source.display()))
            .with_hint("name a folder with a project in it, outside of system paths and credential folders")
    };
    if !source.is_absolute() || source.as_os_str().len() > 4_000 {
        return Err(refused(
            ErrorKind::InvalidInput,
            "it is not an absolute path of reasonable length".into(),
        ));
    }
    let resolved = source.canonicalize().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => refused(ErrorKind::NotFound, "there is no such folder".into()),
        _ => refused(ErrorKind::InvalidInput, error.to_string()),
    })?;
    if !resolved.is_dir() {
        return Err(refused(ErrorKind::InvalidInput, "it is not a folder".into()));
    }
    match blocked(&resolved, state, homes) {
        None => Ok(resolved),
        Some(why) => Err(refused(ErrorKind::MountRefused, why)),
    }
}

fn blocked(path: &Path, state: &Path, homes: &[PathBuf]) -> Option<String> {
    if path == Path::new("/") {
        return Some("it is the whole machine".into());
    }
    if path.starts_with(state) || state.starts_with(path) {
        return Some("our own state is there".into());
    }
    for home in homes {
        if home.starts_with(path) {
            return Some(format!("it is or contains the home {}; name a folder in it", home.display()));
        }
        if let Some(name) = BLOCKED_IN_HOME.iter().find(|name| path.starts_with(home.join(name))) {
            return Some(format!("{} holds credentials", home.join(name).display()));
        }
    }
    if ALLOWED.iter().any(|allowed| path.starts_with(allowed)) {
        return None;
    }
    BLOCKED
        .iter()
        .find(|blocked| path.starts_with(blocked) || Path::new(blocked).starts_with(path))
        .map(|blocked| format!("{blocked} is the system's"))
}

/// The homes of this machine's people, resolved.
fn homes() -> Vec<PathBuf> {
    let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
    let listed = passwd
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b':').nth(5))
        .map(|home| PathBuf::from(OsStr::from_bytes(home)))
        // Accounts of the system live in places that are blocked or harmless for themselves.
        .filter(|home| home.starts_with("/home") || home == Path::new("/root"));
    let own = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    listed
        .chain(own)
        .filter(|home| home.components().count() > 1)
        .flat_map(|home| [home.canonicalize().unwrap_or_else(|_| home.clone()), home])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_folders_homes_and_our_own_state_are_no_workspaces() {
        let homes = [PathBuf::from("/home/ann"), PathBuf::from("/root")];
        let state = Path::new("/data/sandboxer");
        let why = |path: &str| blocked(Path::new(path), state, &homes);
        for path in
            ["/", "/etc", "/etc/ssh", "/proc", "/usr/lib", "/var", "/home", "/home/ann", "/root", "/data"]
        {
            assert!(why(path).is_some(), "{path}");
        }
        for path in ["/home/ann/.ssh", "/home/ann/.config/x", "/root/.aws", "/data/sandboxer/mirrors"] {
            assert!(why(path).is_some(), "{path}");
        }
        for path in ["/home/ann/project", "/root/project", "/srv/x", "/tmp/x", "/usr/src/x", "/data/other"] {
            assert_eq!(why(path), None, "{path}");
        }
    }
}
