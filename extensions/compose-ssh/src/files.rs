//! Files and archives in the main service's container. Every path is resolved inside, by the container's own kernel view:
//! there is no way out to be checked for.

mod listing;
mod stream;

use std::time::Duration;

use sandboxer_core::exec::BoxRead;
use sandboxer_core::extension::Handle;
use sandboxer_core::files::{FileInfo, validate_path};
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::{Command, Output};

use crate::exec::{absolute, must_run};
use crate::provision::Data;
use crate::site::Site;

const LIMIT: Duration = Duration::from_secs(120);
/// A listing that does not fit is refused rather than shown in part.
const LISTING: usize = 16 << 20;

/// The first part of every script: how failures are told by exit codes.
macro_rules! inside {
    ($body:literal) => {
        concat!(
            "missing() { [ ! -e \"$1\" ] && [ ! -L \"$1\" ]; }\n",
            "show() { stat -c '%f %s %u %g %Y' -- \"$1\" || exit 50; printf '%s\\0' \"${1##*/}\"; ",
            "if [ -L \"$1\" ]; then l=$(readlink -- \"$1\"; echo x); printf '%s\\0' \"${l%?x}\"; else printf '\\0'; fi; }\n",
            $body
        )
    };
}

const STAT: &str = inside!(r#"missing "$1" && exit 44; show "$1""#);
const LIST: &str = inside!(
    r#"missing "$1" && exit 44; [ -d "$1" ] || exit 45; [ -r "$1" ] && [ -x "$1" ] || exit 43
d=${1%/}; for f in "$d"/* "$d"/.[!.]* "$d"/..?*; do missing "$f" || show "$f"; done"#
);
const MKDIR: &str = inside!(r#"[ -e "$1" ] && [ ! -d "$1" ] && exit 47; mkdir -p -- "$1" || exit 50"#);
const DELETE: &str = inside!(
    r#"missing "$1" && exit 44
if [ "$2" ]; then rm -rf -- "$1" || exit 50; elif [ -d "$1" ] && [ ! -L "$1" ]; then rmdir -- "$1" 2>/dev/null || exit 48; else rm -f -- "$1" || exit 50; fi"#
);
const RENAME: &str = inside!(
    r#"missing "$1" && exit 44
p=${2%/*}; [ -z "$p" ] || mkdir -p -- "$p" || exit 50
if [ -d "$2" ] && [ ! -L "$2" ]; then [ -d "$1" ] || exit 47; rmdir -- "$2" 2>/dev/null || exit 48; fi
mv -f -- "$1" "$2" || exit 50"#
);
/// Content goes into a file beside the target; a second command puts it in its place.
const RECEIVE: &str = inside!(
    r#"[ -d "$1" ] && exit 46; p=${1%/*}; [ -z "$p" ] || mkdir -p -- "$p" || exit 50
umask 077; cat >"$2" || exit 50"#
);
const COMMIT: &str = inside!(
    r#"chmod "$3" -- "$2" 2>/dev/null || chmod "$3" "$2" || exit 50
if [ -L "$1" ]; then r=$(readlink -f -- "$1") && [ "$r" ] && set -- "$r" "$2"; fi
mv -f -- "$2" "$1" || exit 50"#
);
const READ: &str = inside!(
    r#"missing "$1" && exit 44; [ -d "$1" ] && exit 46; [ -r "$1" ] || exit 43; echo; exec cat -- "$1""#
);
const TAR_OUT: &str = inside!(
    r#"missing "$1" && exit 44
if [ -d "$1" ]; then cd -- "$1" && echo && exec tar -c -f - .; else p=${1%/*}; cd -- "${p:-/}" && echo && exec tar -c -f - -- "${1##*/}"; fi; exit 50"#
);
const TAR_IN: &str = inside!(
    r#"[ -e "$1" ] && [ ! -d "$1" ] && exit 45; mkdir -p -- "$1" && cd -- "$1" && exec tar -x -o -f -; exit 50"#
);

pub(crate) struct Files<'a> {
    site: &'a Site,
    handle: &'a Handle,
    data: Data,
}

impl<'a> Files<'a> {
    pub(crate) fn of(site: &'a Site, handle: &'a Handle) -> Result<Self> {
        Ok(Self { site, handle, data: Data::of(handle)? })
    }

    fn path(&self, path: &str) -> Result<String> {
        validate_path(path)?;
        let path = absolute(&self.data.workdir, path);
        let trimmed = path.trim_end_matches('/');
        Ok(if trimmed.is_empty() { "/".into() } else { trimmed.to_owned() })
    }

    /// `docker exec` of a fixed script in the container.
    fn command(&self, script: &'static str, args: &[&str], input: bool) -> Command {
        let mut argv = vec!["docker", "exec"];
        if input {
            argv.push("-i");
        }
        argv.extend([self.data.container.as_str(), "/bin/sh", "-c", script, "sh"]);
        argv.extend(args);
        self.site.with_engine(Command::new(argv))
    }

    async fn run(&self, script: &'static str, path: &str, args: &[&str]) -> Result<Output> {
        let output =
            self.site.remote.output(self.command(script, args, false).timeout(LIMIT), LISTING).await?;
        if output.success() {
            return Ok(output);
        }
        Err(self.failed(path, &output).await)
    }

    /// What an exit code of a script means.
    async fn failed(&self, path: &str, output: &Output) -> Error {
        let shown = printable(path);
        let words = output.last_words();
        let (kind, what) = match output.outcome.exit_code {
            43 => (ErrorKind::Denied, format!("`{shown}` cannot be read")),
            44 => (ErrorKind::NotFound, format!("there is no `{shown}`")),
            45 => (ErrorKind::InvalidInput, format!("`{shown}` is not a folder")),
            46 => (ErrorKind::InvalidInput, format!("`{shown}` is a folder")),
            47 => (ErrorKind::Conflict, format!("something else is at `{shown}`")),
            48 => (ErrorKind::Conflict, format!("the folder `{shown}` is not empty")),
            _ if words.contains("No space left") => {
                (ErrorKind::NoSpace, format!("there is no space for `{shown}`"))
            }
            _ if words.contains("Read-only file system") => {
                (ErrorKind::Denied, format!("`{shown}` is read-only"))
            }
            _ if words.contains("ermission denied") => {
                (ErrorKind::Denied, format!("`{shown}` is not allowed"))
            }
            _ => {
                if let Err(error) = must_run(self.site, self.handle, &self.data.container).await {
                    return error;
                }
                (
                    ErrorKind::BackendFailed,
                    format!("`{shown}` failed inside the service `{}`", self.data.service),
                )
            }
        };
        let error = Error::new(kind, what);
        if words.is_empty() { error } else { error.with_source(std::io::Error::other(words)) }
    }

    pub(crate) async fn stat(&self, path: &str) -> Result<FileInfo> {
        let full = self.path(path)?;
        let output = self.run(STAT, path, &[&full]).await?;
        let folder = full.rsplit_once('/').map_or("/", |(folder, _)| folder);
        let mut all = listing::parse(&output.stdout, folder)?;
        all.pop().ok_or_else(|| Error::new(ErrorKind::BackendFailed, "the container said nothing"))
    }

    pub(crate) async fn list(&self, path: &str) -> Result<Vec<FileInfo>> {
        let full = self.path(path)?;
        let output = self.run(LIST, path, &[&full]).await?;
        if output.truncated {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("`{}` has too many entries", printable(path)),
            ));
        }
        listing::parse(&output.stdout, &full)
    }

    pub(crate) async fn mkdir(&self, path: &str) -> Result<()> {
        self.run(MKDIR, path, &[&self.path(path)?]).await.map(drop)
    }

    pub(crate) async fn delete(&self, path: &str, recursive: bool) -> Result<()> {
        self.run(DELETE, path, &[&self.path(path)?, if recursive { "1" } else { "" }]).await.map(drop)
    }

    pub(crate) async fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.run(RENAME, from, &[&self.path(from)?, &self.path(to)?]).await.map(drop)
    }

    pub(crate) async fn read(&self, path: &str) -> Result<BoxRead> {
        self.stream_out(READ, path).await
    }

    pub(crate) async fn tar_out(&self, path: &str) -> Result<BoxRead> {
        self.stream_out(TAR_OUT, path).await
    }

    async fn stream_out(&self, script: &'static str, path: &str) -> Result<BoxRead> {
        let full = self.path(path)?;
        match stream::out(&self.site.remote, self.command(script, &[&full], false)).await? {
            Ok(stream) => Ok(stream),
            Err(output) => Err(self.failed(path, &output).await),
        }
    }

    /// Replaces what was there at once or not at all, also when the data breaks off.
    pub(crate) async fn write(&self, path: &str, mode: u32, data: BoxRead) -> Result<()> {
        let full = self.path(path)?;
        let folder = full.rsplit_once('/').map_or("", |(folder, _)| folder);
        let beside = format!("{folder}/.sandboxer-tmp-{}", sandboxer_core::ExecId::generate());
        let sent = match stream::into(&self.site.remote, self.command(RECEIVE, &[&full, &beside], true), data)
            .await
        {
            Ok(output) if output.success() => {
                let mode = format!("{:o}", mode & 0o7777);
                self.run(COMMIT, path, &[&full, &beside, &mode]).await.map(drop)
            }
            Ok(output) => Err(self.failed(path, &output).await),
            Err(error) => Err(error),
        };
        if sent.is_err() {
            let _ = self.run("rm -f -- \"$1\"", path, &[&beside]).await;
        }
        sent
    }

    pub(crate) async fn tar_in(&self, path: &str, tar: BoxRead) -> Result<()> {
        let full = self.path(path)?;
        let output = stream::into(&self.site.remote, self.command(TAR_IN, &[&full], true), tar).await?;
        if output.success() { Ok(()) } else { Err(self.failed(path, &output).await) }
    }
}
