//! One host, whichever way leads to it.

use std::path::Path;
use std::sync::Arc;

use sandboxer_core::exec::{BoxRead, ExecSession, TtySize};
use sandboxer_core::extension::BoxDuplex;
use sandboxer_core::host::{Host, HostAccess};
use sandboxer_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::bootstrap::{Mode, Shell};
use crate::command::{Command, Output, Stdin};
use crate::marks::{self, AfterMark, Start};
use crate::session::{Drive, Line, own_line, separate_line};
use crate::ssh::Ssh;
use crate::transport::Raw;
use crate::tty::Terminal;
use crate::within::Entry;
use crate::{bootstrap, local};

/// A shell on a host. Cheap to clone; nothing is connected until it is used.
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
    within: Option<Arc<Entry>>,
}

struct Inner {
    name: String,
    way: Way,
}

enum Way {
    Local,
    Ssh(Ssh),
}

impl Remote {
    /// The way to this host. Sockets of connections are kept below `state_dir`, so that the next process finds them.
    pub fn open(host: &Host, state_dir: &Path) -> Result<Self> {
        let way = match &host.access {
            HostAccess::Local => Way::Local,
            HostAccess::Ssh(access) => Way::Ssh(Ssh::new(&host.name, access, state_dir)?),
        };
        Ok(Self { inner: Arc::new(Inner { name: host.name.clone(), way }), within: None })
    }

    /// The machine that we are on.
    pub fn local() -> Self {
        let inner = Inner { name: sandboxer_core::host::LOCAL.into(), way: Way::Local };
        Self { inner: Arc::new(inner), within: None }
    }

    /// The way into something on this host: commands run in there, and files are those in there.
    #[must_use]
    pub fn within(&self, entry: Entry) -> Self {
        Self { inner: self.inner.clone(), within: Some(Arc::new(entry)) }
    }

    fn outside(&self) -> Self {
        Self { inner: self.inner.clone(), within: None }
    }

    pub fn name(&self) -> &str {
        &self.inner.name
    }

    pub fn is_local(&self) -> bool {
        matches!(self.inner.way, Way::Local)
    }

    /// Makes sure that there is a connection: `Unreachable`, `HostKeyRefused` or `Denied` if there cannot be one.
    pub async fn connect(&self) -> Result<()> {
        match &self.inner.way {
            Way::Local => Ok(()),
            Way::Ssh(ssh) => ssh.connect().await,
        }
    }

    /// Ends the connection instead of leaving it for the next command.
    pub async fn disconnect(&self) {
        if let Way::Ssh(ssh) = &self.inner.way {
            ssh.disconnect().await;
        }
    }

    /// A connection to a port on the host's loopback.
    pub async fn forward(&self, port: u16) -> Result<BoxDuplex> {
        self.forward_to(std::net::Ipv4Addr::LOCALHOST.into(), port).await
    }

    /// A connection to a port of this address, as seen from the host: that of a container on it.
    pub async fn forward_to(&self, address: std::net::IpAddr, port: u16) -> Result<BoxDuplex> {
        match &self.inner.way {
            Way::Local => match tokio::net::TcpStream::connect((address, port)).await {
                Ok(stream) => Ok(Box::pin(stream)),
                Err(source) => {
                    Err(Error::new(ErrorKind::Unreachable, format!("nothing answers on port {port}"))
                        .with_source(source))
                }
            },
            Way::Ssh(ssh) => ssh.forward(address, port).await,
        }
    }

    /// Starts a command. It returns when the host has started it, so that a host that cannot be reached or a missing
    /// working directory is an error here, and never an exit code.
    pub async fn start(&self, command: Command) -> Result<ExecSession> {
        command.validate()?;
        let command = match &self.within {
            Some(entry) => entry.adapt(command),
            None => command,
        };
        let nonce = nonce()?;
        if let Some(size) = command.tty {
            return Box::pin(self.start_tty(command, &nonce, size)).await;
        }
        let mode = if command.stdin == Stdin::Null { Mode::Watched } else { Mode::Fed };
        let mut raw = self.raw().await?;
        let script = bootstrap::script(&command, &nonce, mode);
        let marks = marks::watch(raw.stderr, nonce.clone());
        // A shell that is gone already says why on stderr.
        let fed = feed(&mut raw.stdin, script.as_bytes()).await;
        let started = marks.start.await.unwrap_or(Start::Never(String::new()));
        let shell = match started {
            Start::Running(shell) => shell,
            Start::NoDirectory => return Err(no_directory(&command)),
            Start::Never(words) => return Err(self.no_shell(raw.ended, raw.stdout, words, fed).await),
        };
        let (line, stdin) = match command.stdin {
            Stdin::Null => (own_line(raw.stdin), None),
            stdin => {
                let line = self.watcher(&nonce, &shell);
                match stdin {
                    Stdin::Bytes(bytes) => {
                        let mut target = raw.stdin;
                        tokio::spawn(async move {
                            let _ = feed(&mut target, &bytes).await;
                            let _ = target.shutdown().await;
                        });
                        (line, None)
                    }
                    _ => (line, Some(raw.stdin)),
                }
            }
        };
        let (stdout, unread) = AfterMark::new(raw.stdout, &nonce);
        let drive = Drive {
            host: self.inner.name.clone(),
            line: Some(line),
            end: marks.end,
            ended: raw.ended,
            unread: Some(unread),
            timeout: command.timeout,
            terminal: None,
        };
        Ok(ExecSession {
            stdin,
            stdout: Box::pin(stdout),
            stderr: Some(Box::pin(marks.stderr)),
            control: Arc::new(drive.start()),
        })
    }

    /// A command in a terminal. Its script goes ahead as a file, since a terminal's input is not for scripts.
    async fn start_tty(&self, command: Command, nonce: &str, size: TtySize) -> Result<ExecSession> {
        let script = bootstrap::script(&command, nonce, Mode::Terminal);
        let store = Command::script(bootstrap::STORE_SCRIPT, [nonce, script.trim_end_matches('\n')]);
        self.outside().check("preparing a terminal", store).await?;
        let (terminal, other_end) = Terminal::open(size)?;
        let ended = match &self.inner.way {
            Way::Local => local::open_tty(nonce, other_end)?,
            Way::Ssh(ssh) => {
                let command = bootstrap::remote_terminal_command(nonce);
                // The modes of our terminal go along; only then does it become a mere line.
                let (ended, holder) = ssh.open_tty(&command, other_end).await?;
                terminal.make_raw(holder)?;
                ended
            }
        };
        let marks = marks::watch(Box::pin(terminal.output()?), nonce.to_owned());
        let shell = match marks.start.await.unwrap_or(Start::Never(String::new())) {
            Start::Running(shell) => shell,
            Start::NoDirectory => return Err(no_directory(&command)),
            Start::Never(words) => {
                return Err(self.no_shell(ended, Box::pin(tokio::io::empty()), words, Ok(())).await);
            }
        };
        let drive = Drive {
            host: self.inner.name.clone(),
            line: Some(self.watcher(nonce, &shell)),
            end: marks.end,
            ended,
            unread: None,
            timeout: command.timeout,
            terminal: Some(terminal.clone()),
        };
        Ok(ExecSession {
            stdin: Some(Box::pin(terminal.input()?)),
            stdout: Box::pin(marks.stderr),
            stderr: None,
            control: Arc::new(drive.start()),
        })
    }

    /// A watcher on a line of its own.
    fn watcher(&self, nonce: &str, shell: &Shell) -> Line {
        let remote = self.clone();
        separate_line(async move { remote.raw().await }, bootstrap::watcher(nonce, shell))
    }

    /// Runs a command to its end and keeps up to `limit` bytes of each output. An exit code other than zero is no error.
    pub async fn output(&self, command: Command, limit: usize) -> Result<Output> {
        let session = self.start(command).await?;
        drop(session.stdin);
        let stderr = session.stderr.unwrap_or_else(|| Box::pin(tokio::io::empty()));
        let control = session.control;
        let (stdout, stderr, outcome) =
            tokio::join!(keep(session.stdout, limit), keep(stderr, limit), control.wait());
        let (stdout, stderr) = (stdout?, stderr?);
        Ok(Output { outcome: outcome?, truncated: stdout.1 || stderr.1, stdout: stdout.0, stderr: stderr.0 })
    }

    /// Like [`Self::output`], but anything other than success is an error with the command's last words.
    pub async fn check(&self, what: &str, command: Command) -> Result<Output> {
        let output = self.output(command, CHECK_LIMIT).await?;
        if output.success() { Ok(output) } else { Err(crate::failure::of(what, &output)) }
    }

    async fn raw(&self) -> Result<Raw> {
        match &self.inner.way {
            Way::Local => local::open(),
            Way::Ssh(ssh) => ssh.open().await,
        }
    }

    /// Why a shell never said that it started.
    async fn no_shell(
        &self,
        ended: crate::transport::Ended,
        stdout: BoxRead,
        words: String,
        fed: std::io::Result<()>,
    ) -> Error {
        if let Ok(Err(error)) = tokio::time::timeout(std::time::Duration::from_secs(5), ended).await {
            return error;
        }
        let (said, _) = keep(stdout, 4_096).await.unwrap_or_default();
        let words = if words.is_empty() { String::from_utf8_lossy(&said).trim().to_owned() } else { words };
        let error = Error::new(
            ErrorKind::BackendFailed,
            format!("{} gives no shell to run commands with", self.name()),
        )
        .with_hint("the account needs a working login shell, /bin/sh and a /proc");
        match fed {
            _ if !words.is_empty() => error.with_source(std::io::Error::other(words)),
            Err(source) => error.with_source(source),
            Ok(()) => error,
        }
    }
}

/// What is kept of a command that only has to succeed.
const CHECK_LIMIT: usize = 1 << 20;

async fn feed(target: &mut sandboxer_core::exec::BoxWrite, bytes: &[u8]) -> std::io::Result<()> {
    target.write_all(bytes).await?;
    target.flush().await
}

/// Reads to the end and keeps the first `limit` bytes.
pub(crate) async fn keep(mut source: BoxRead, limit: usize) -> Result<(Vec<u8>, bool)> {
    let mut kept = Vec::new();
    let mut chunk = vec![0; 32 << 10];
    let mut truncated = false;
    loop {
        let count = source.read(&mut chunk).await.map_err(|source| {
            Error::new(ErrorKind::BackendFailed, "the output of a command broke off").with_source(source)
        })?;
        if count == 0 {
            return Ok((kept, truncated));
        }
        let room = (limit - kept.len()).min(count);
        kept.extend_from_slice(&chunk[..room]);
        truncated |= room < count;
    }
}

fn no_directory(command: &Command) -> Error {
    let dir = sandboxer_core::suggest::printable(command.cwd.as_deref().unwrap_or_default());
    Error::new(ErrorKind::NotFound, format!("`{dir}` is not a directory on the host that can be entered"))
}

pub(crate) fn nonce() -> Result<String> {
    let mut bytes = [0_u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(|source| {
        Error::new(ErrorKind::Internal, "there are no random numbers")
            .with_source(std::io::Error::from(source))
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
