//! One host as this extension uses it: a shell, an engine, a folder of ours.

mod tool;

use std::sync::Arc;
use std::time::Duration;

use sandboxer_core::host::Host;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::{Command, Output, Remote, Stdin};
use tokio::io::AsyncReadExt as _;
use tokio::sync::OnceCell;

use crate::config::{DOCKER_HOST_LABEL, Settings};

pub(crate) use tool::{Tool, engine_down};

/// Questions to the engine; work of its own has its own limit.
const ASK_LIMIT: Duration = Duration::from_secs(60);
/// Whoever holds the lock of a tag is provisioning or removing it.
const LOCK_LIMIT: Duration = Duration::from_secs(900);
/// Few enough to leave lying about, many enough not to make strangers wait for each other.
const LOCKS: u32 = 1_024;
/// What is kept of an answer.
pub(crate) const ANSWER: usize = 4 << 20;

#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) remote: Remote,
    docker_host: Option<String>,
    /// Our folder on the host, absolute.
    pub(crate) base: String,
    tool: Arc<OnceCell<Tool>>,
}

/// The start of every script that changes what a tag has. The processes themselves hold the lock, so that whoever removes
/// the tag waits until work that was broken off is really over.
macro_rules! alone {
    ($body:literal) => {
        concat!(
            "umask 077; mkdir -p -- \"${SBX_LOCK%/*}\" || exit 46\n",
            "if command -v flock >/dev/null 2>&1; then exec 8>\"$SBX_LOCK\" && flock -w 120 8 || exit 46; fi\n",
            $body
        )
    };
}
pub(crate) use alone;

/// A tag that nobody else works on while this is held.
pub(crate) struct Lock {
    _session: Option<sandboxer_core::exec::ExecSession>,
}

impl Site {
    pub(crate) async fn open(settings: &Settings, host: &Host) -> Result<Self> {
        let remote = Remote::open(host, &settings.state_dir)?;
        let label = host.labels.get(DOCKER_HOST_LABEL).cloned();
        let docker_host = if host.is_local() { settings.docker_host.clone().or(label) } else { label };
        let wanted = if host.is_local() {
            settings.state_dir.join("compose").display().to_string()
        } else {
            String::new()
        };
        let script = "printf '%s' \"${1:-${XDG_DATA_HOME:-$HOME/.local/share}/sandboxer/compose}\"";
        let base =
            remote.check("asking for the folder for stacks", Command::script(script, [wanted])).await?.text();
        if !base.starts_with('/') || base.contains('\n') {
            return Err(Error::new(
                ErrorKind::BackendFailed,
                format!("{} has no folder for stacks", host.name),
            ));
        }
        Ok(Self { remote, docker_host, base, tool: Arc::default() })
    }

    /// The folder of one sandbox.
    pub(crate) fn folder(&self, tag: &str) -> String {
        format!("{}/{tag}", self.base)
    }

    /// Where a sandbox's folder is filled before it gets its name.
    pub(crate) fn staging(&self, tag: &str) -> String {
        format!("{}/.staging-{tag}", self.base)
    }

    pub(crate) fn snapshot_folder(&self, id: &str) -> String {
        format!("{}/snapshots/{id}", self.base)
    }

    /// A command that reaches this host's engine.
    pub(crate) fn with_engine(&self, command: Command) -> Command {
        let command = command.env("DOCKER_CLI_HINTS", "false").env("COMPOSE_HTTP_TIMEOUT", "300");
        match &self.docker_host {
            Some(host) => command.env("DOCKER_HOST", host),
            None => command,
        }
    }

    pub(crate) fn docker_host(&self) -> Option<&str> {
        self.docker_host.as_deref()
    }

    /// For scripts that start with [`alone!`].
    pub(crate) fn alone(&self, tag: &str, command: Command) -> Command {
        self.with_engine(command).env("SBX_LOCK", self.work_lock(tag))
    }

    pub(crate) fn work_lock(&self, tag: &str) -> String {
        format!("{}.work", self.lock_path(tag))
    }

    fn lock_path(&self, tag: &str) -> String {
        let number = tag.bytes().fold(5_381_u32, |sum, byte| sum.wrapping_mul(33) ^ u32::from(byte)) % LOCKS;
        format!("{}/locks/{number}", self.base)
    }

    /// `docker` with these arguments, within the time for questions.
    pub(crate) async fn docker<S: AsRef<str>>(&self, args: &[S]) -> Result<Output> {
        let argv = std::iter::once("docker").chain(args.iter().map(AsRef::as_ref));
        let command = self.with_engine(Command::new(argv)).timeout(ASK_LIMIT);
        self.remote.output(command, ANSWER).await
    }

    /// A fixed script that may use `docker`.
    pub(crate) async fn script(&self, text: &'static str, args: &[&str]) -> Result<Output> {
        let command = self.with_engine(Command::script(text, args.iter().copied())).timeout(ASK_LIMIT);
        self.remote.output(command, ANSWER).await
    }

    /// The compose tool, looked for once.
    pub(crate) async fn tool(&self) -> Result<&Tool> {
        self.tool.get_or_try_init(|| Tool::find(self)).await
    }

    /// Waits until nobody else works on this tag.
    pub(crate) async fn lock(&self, tag: &str) -> Result<Lock> {
        let script = "command -v flock >/dev/null 2>&1 || { echo none; exit 0; }
umask 077; mkdir -p -- \"${1%/*}\"; exec 9>\"$1\" && flock 9 && echo held && exec cat >/dev/null";
        let mut session =
            self.remote.start(Command::script(script, [self.lock_path(tag)]).stdin(Stdin::Piped)).await?;
        let mut word = [0; 5];
        let read = tokio::time::timeout(LOCK_LIMIT, session.stdout.read_exact(&mut word)).await;
        match read {
            Ok(Ok(_)) if &word == b"held\n" => Ok(Lock { _session: Some(session) }),
            // A host without `flock` has no way to keep two of us apart; each step is idempotent all the same.
            Ok(Ok(_)) => Ok(Lock { _session: None }),
            Ok(Err(source)) => Err(Error::new(
                ErrorKind::BackendFailed,
                format!("{tag} cannot be locked on {}", self.remote.name()),
            )
            .with_source(source)),
            Err(_) => Err(Error::new(
                ErrorKind::Timeout,
                format!("somebody else has been working on {tag} for too long"),
            )),
        }
    }
}

/// Tags become names of folders, projects and labels, so they are only what our ids are made of.
pub(crate) fn check_tag(tag: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    if !tag.is_empty()
        && tag.len() <= 63
        && tag.bytes().all(plain)
        && tag.as_bytes()[0].is_ascii_alphanumeric()
    {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidInput,
        format!("`{}` is no tag", sandboxer_core::suggest::printable(tag)),
    ))
}
