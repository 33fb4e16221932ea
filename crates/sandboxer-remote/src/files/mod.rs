//! Files on a host, below one directory.
//!
//! Every path is walked component by component on the host itself, and each step has to end below the root: neither
//! `..` nor a symbolic link leads out. What the last component is, is looked at from inside its own directory.

mod listing;
mod scripts;
mod transfer;
mod untar;

use sandboxer_core::exec::BoxRead;
use sandboxer_core::files::{FileInfo, validate_path};
use sandboxer_core::{Error, ErrorKind, Result};

use crate::command::{Command, Output};
use crate::failure;
use crate::remote::Remote;

/// A listing that does not fit is refused rather than shown in part.
const LISTING_LIMIT: usize = 16 << 20;

/// Files below a root; `~/…` is below the user's home. Paths are relative to the root, also with a leading slash.
#[derive(Clone)]
pub struct Files {
    remote: Remote,
    root: String,
}

impl Remote {
    /// The files below this directory of the host.
    pub fn files(&self, root: impl Into<String>) -> Files {
        Files { remote: self.clone(), root: root.into() }
    }
}

impl Files {
    /// What is there; a link is told as a link.
    pub async fn stat(&self, path: &str) -> Result<FileInfo> {
        let output = self.run(scripts::STAT, path, &[]).await?;
        let mut entries = listing::parse(&output.stdout, parent(path))?;
        entries.pop().ok_or_else(|| not_found(path))
    }

    pub async fn list(&self, path: &str) -> Result<Vec<FileInfo>> {
        let output = self.run(scripts::LIST, path, &[]).await?;
        listing::parse(&output.stdout, path)
    }

    pub async fn mkdir(&self, path: &str) -> Result<()> {
        self.run(scripts::MKDIR, path, &[]).await.map(drop)
    }

    pub async fn delete(&self, path: &str, recursive: bool) -> Result<()> {
        self.run(scripts::DELETE, path, &[if recursive { "1" } else { "" }]).await.map(drop)
    }

    /// Replaces a file, never a folder that has something in it.
    pub async fn rename(&self, from: &str, to: &str) -> Result<()> {
        let to_parts = split(to)?;
        self.run(scripts::RENAME, from, &[&to_parts.0, &to_parts.1]).await.map(drop)
    }

    /// The content of a file as it comes.
    pub async fn read(&self, path: &str) -> Result<BoxRead> {
        transfer::stream_out(&self.remote, self.command(scripts::READ, path, &[])?, path).await
    }

    /// Creates parents; replaces what was there at once or not at all.
    pub async fn write(&self, path: &str, mode: u32, data: BoxRead) -> Result<()> {
        transfer::write(self, path, mode, data).await
    }

    /// A tar of what is below `path`; of the file itself where it is one.
    pub async fn tar_out(&self, path: &str) -> Result<BoxRead> {
        transfer::stream_out(&self.remote, self.command(scripts::TAR_OUT, path, &[])?, path).await
    }

    /// Unpacks a tar below `path`, which is created. Links that lead out, hard links and devices are refused.
    pub async fn tar_in(&self, path: &str, tar: BoxRead) -> Result<()> {
        transfer::tar_in(self, path, tar).await
    }

    async fn run(&self, script: &'static str, path: &str, args: &[&str]) -> Result<Output> {
        let output = self.remote.output(self.command(script, path, args)?, LISTING_LIMIT).await?;
        if output.truncated {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("`{}` has too many entries to list", printable(path)),
            ));
        }
        succeed(path, output)
    }

    /// `$1` is the root, `$2` the directory and `$3` the name in it, then what the script needs.
    fn command(&self, script: &'static str, path: &str, args: &[&str]) -> Result<Command> {
        let (dir, name) = split(path)?;
        let mut all = vec![self.root.clone(), dir, name];
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        Ok(Command::script(script, all))
    }
}

/// A path as the directory to walk to and the name in it; `.` where it ends in the directory itself.
fn split(path: &str) -> Result<(String, String)> {
    validate_path(path)?;
    let path = path.trim_end_matches('/');
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    Ok(match name {
        "" | "." => (dir.to_owned(), ".".to_owned()),
        ".." => (path.to_owned(), ".".to_owned()),
        name => (dir.to_owned(), name.to_owned()),
    })
}

fn parent(path: &str) -> &str {
    path.trim_end_matches('/').rsplit_once('/').map_or("", |(dir, _)| if dir.is_empty() { "/" } else { dir })
}

/// What the scripts' exit codes mean.
fn succeed(path: &str, output: Output) -> Result<Output> {
    let shown = printable(path);
    let words = output.last_words();
    let says = |needle: &str| words.contains(needle);
    let (kind, message) = match output.outcome.exit_code {
        0 => return Ok(output),
        scripts::NO_ROOT => (ErrorKind::NotFound, "the directory on the host is gone".to_owned()),
        scripts::NOT_FOUND => return Err(not_found(path)),
        scripts::WRONG_KIND => {
            (ErrorKind::InvalidInput, format!("`{shown}` is of another kind: a folder, or none, or a device"))
        }
        scripts::ESCAPE => (ErrorKind::Denied, format!("`{shown}` leads out of the sandbox")),
        scripts::EXISTS => (ErrorKind::Conflict, format!("`{shown}` is in the way or not empty")),
        scripts::BROKEN_OFF => (ErrorKind::BackendFailed, format!("`{shown}` did not arrive as a whole")),
        _ if says("No such file") => return Err(not_found(path)),
        _ if says("Permission denied") || says("Operation not permitted") => {
            (ErrorKind::Denied, format!("the host does not allow that for `{shown}`"))
        }
        _ if says("not empty") => (ErrorKind::Conflict, format!("`{shown}` is not empty")),
        _ if says("File name too long") => {
            (ErrorKind::InvalidInput, format!("`{shown}` is too long a name for the host"))
        }
        _ => return Err(failure::of(&format!("working on `{shown}`"), &output)),
    };
    let error = Error::new(kind, message);
    Err(if words.is_empty() { error } else { error.with_source(std::io::Error::other(words)) })
}

fn not_found(path: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no `{}`", printable(path)))
}

fn printable(path: &str) -> String {
    sandboxer_core::suggest::printable(path)
}
