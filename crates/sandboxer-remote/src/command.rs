//! What to run on a host, and what came of it.

use std::collections::BTreeMap;
use std::time::Duration;

use sandboxer_core::exec::{ExecOutcome, TtySize, is_env_name};
use sandboxer_core::{Error, ErrorKind, Result};

/// Bounds of one command: as many bytes as an exec may have, and room for a script of ours around it.
const MAX_BYTES: usize = 3 << 20;

/// One command for a host. Nothing of it is in any process's arguments but the command's own words.
#[derive(Clone, Debug)]
pub struct Command {
    pub(crate) program: Program,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: Option<String>,
    pub(crate) stdin: Stdin,
    pub(crate) timeout: Option<Duration>,
    pub(crate) tty: Option<TtySize>,
    pub(crate) running: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Program {
    Argv(Vec<String>),
    Script { text: &'static str, args: Vec<String> },
}

/// Where a command's input comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stdin {
    /// End-of-file at once.
    #[default]
    Null,
    /// These bytes, then end-of-file.
    Bytes(Vec<u8>),
    /// The caller feeds it.
    Piped,
}

impl Command {
    /// A program with its arguments, found on the PATH of the host.
    pub fn new<I, S>(argv: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        Self::of(Program::Argv(argv.into_iter().map(Into::into).collect()))
    }

    /// A fixed POSIX shell script with `$1`, `$2` … The text is the programmer's; what comes from outside is an argument.
    pub fn script<I, S>(text: &'static str, args: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        Self::of(Program::Script { text, args: args.into_iter().map(Into::into).collect() })
    }

    fn of(program: Program) -> Self {
        Self {
            program,
            env: BTreeMap::new(),
            cwd: None,
            stdin: Stdin::Null,
            timeout: None,
            tty: None,
            running: None,
        }
    }

    /// A variable, which is in no process's arguments on the way.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    #[must_use]
    pub fn envs<K: Into<String>, V: Into<String>>(mut self, all: impl IntoIterator<Item = (K, V)>) -> Self {
        self.env.extend(all.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// The working directory; `~/…` is below the user's home on the host. Without it, the home.
    #[must_use]
    pub fn cwd(mut self, dir: impl Into<String>) -> Self {
        self.cwd = Some(dir.into());
        self
    }

    #[must_use]
    pub fn stdin(mut self, stdin: Stdin) -> Self {
        self.stdin = stdin;
        self
    }

    /// After this the command and everything that it started is killed.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// A terminal of this size; stdin is fed then.
    #[must_use]
    pub fn tty(mut self, size: TtySize) -> Self {
        self.tty = Some(size);
        self
    }

    /// While the command runs, it is use of the sandbox in this directory (absolute), which its guard takes note of.
    #[must_use]
    pub fn guarded_by(mut self, dir: &str) -> Self {
        self.running = Some(format!("{dir}/{}/running", crate::guard::FOLDER));
        self
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let refuse = |why: &str| Err(Error::new(ErrorKind::InvalidInput, why.to_owned()));
        let args = match &self.program {
            Program::Argv(argv) if argv.first().is_none_or(String::is_empty) => {
                return refuse("the command is empty");
            }
            Program::Argv(args) | Program::Script { args, .. } => args,
        };
        if let Some(name) = self.env.keys().find(|name| !is_env_name(name)) {
            let name = sandboxer_core::suggest::printable(name);
            return refuse(&format!("`{name}` is not a variable name"));
        }
        let pieces = || args.iter().chain(self.env.values()).chain(self.cwd.iter());
        if pieces().any(|piece| piece.contains('\0')) {
            return refuse("the command, environment or directory contains a NUL character");
        }
        if pieces().map(String::len).sum::<usize>() > MAX_BYTES {
            return refuse("the command and its environment are too large");
        }
        Ok(())
    }
}

/// What a command left behind. Output beyond the limit was read and dropped.
#[derive(Clone, Debug)]
pub struct Output {
    pub outcome: ExecOutcome,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Something did not fit.
    pub truncated: bool,
}

impl Output {
    pub fn success(&self) -> bool {
        self.outcome.exit_code == 0
    }

    /// stdout as text, without the white space at its ends.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim().to_owned()
    }

    /// The last words on stderr (or on stdout, where that is silent), bounded, for an error.
    pub fn last_words(&self) -> String {
        const MOST: usize = 2_000;
        let source = if self.stderr.trim_ascii().is_empty() { &self.stdout } else { &self.stderr };
        let text = String::from_utf8_lossy(source);
        let text = text.trim();
        let mut from = text.len().saturating_sub(MOST);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        text[from..].to_owned()
    }
}
