//! A foreground exec as its caller sees it. The streams are the process's own pipes or terminal.

use super::connection::{Connection, unexpected};
use crate::error::{AtStep as _, Result, RuntimeError};
use crate::report::ExecExit;
use crate::spec::ExecSpec;
use crate::wire::{ExecRequest, Program, Reply, Request};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::{Winsize, tcsetwinsize};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, watch};

/// What one of the exec's streams is connected to.
#[derive(Debug)]
pub enum Stdio {
    /// A pipe whose other end the session holds.
    Piped,
    Null,
    /// A descriptor of the caller; the process inside gets it as it is.
    Fd(OwnedFd),
}

type Ended = Option<Result<ExecExit>>;

/// A running exec. Dropping it, and every handle of it, kills the exec's whole process tree.
#[derive(Debug)]
pub struct ExecSession {
    /// The process id inside the sandbox.
    pub pid: i32,
    /// The exec's id.
    pub id: String,
    /// Dropping it gives the process its end of file.
    pub stdin: Option<ExecInput>,
    /// With a terminal, its whole output.
    pub stdout: Option<ExecOutput>,
    pub stderr: Option<ExecOutput>,
    handle: ExecHandle,
}

/// Signals, resizes and awaits an exec while its streams are used elsewhere.
#[derive(Debug, Clone)]
pub struct ExecHandle {
    requests: mpsc::Sender<Request>,
    ended: watch::Receiver<Ended>,
    terminal: Option<Arc<OwnedFd>>,
}

impl ExecSession {
    pub(crate) async fn start(
        mut connection: Connection,
        spec: ExecSpec,
        program: Program,
        streams: [Stdio; 3],
    ) -> Result<Self> {
        let tty = spec.tty.is_some();
        let streams = if tty { [Stdio::Null, Stdio::Null, Stdio::Null] } else { streams };
        let [stdin, stdout, stderr] = streams;
        let (stdin, stdin_far) = split(stdin, true)?;
        let (stdout, stdout_far) = split(stdout, false)?;
        let (stderr, stderr_far) = split(stderr, false)?;
        let far = [stdin_far, stdout_far, stderr_far];
        let request = ExecRequest { spec, program, streams: [0, 1, 2].map(|i| far[i].is_some()) };
        let fds = far.into_iter().flatten().collect();
        connection.send(&Request::Exec(Box::new(request)), &[], fds).await?;
        let (id, pid, mut frame) = match connection.receive().await? {
            (Reply::Started { id, pid }, frame) => (id, pid, frame),
            (Reply::Failed(error), _) => return Err(error),
            (reply, _) => return Err(unexpected(&reply)),
        };
        let (publish, ended) = watch::channel(None);
        let (requests, queue) = mpsc::channel(64);
        tokio::spawn(drive(connection, queue, publish));
        let mut handle = ExecHandle { requests, ended, terminal: None };
        let (stdin, stdout, stderr) = if tty {
            let master =
                frame.fds.pop().ok_or_else(|| RuntimeError::protocol("the terminal did not come along"))?;
            let [reading, writing] = [master.try_clone(), master.try_clone()];
            handle.terminal = Some(Arc::new(master));
            let duplicate = "cannot duplicate the terminal";
            (Some(writing.at("exec", duplicate)?), Some(reading.at("exec", duplicate)?), None)
        } else {
            (stdin, stdout, stderr)
        };
        Ok(Self {
            pid,
            id,
            stdin: stdin.map(|fd| ExecInput::new(fd, tty)).transpose()?,
            stdout: stdout.map(|fd| ExecOutput::new(fd, handle.ended.clone())).transpose()?,
            stderr: stderr.map(|fd| ExecOutput::new(fd, handle.ended.clone())).transpose()?,
            handle,
        })
    }

    pub fn handle(&self) -> ExecHandle {
        self.handle.clone()
    }

    /// Waits for the end. Output still in the pipes stays readable.
    pub async fn wait(&mut self) -> Result<ExecExit> {
        self.handle.wait().await
    }

    /// Sends a signal to the command, or with `whole_tree` to everything it started.
    pub async fn signal(&self, signal: i32, whole_tree: bool) -> Result<()> {
        self.handle.signal(signal, whole_tree).await
    }

    pub fn resize(&self, rows: u16, cols: u16) -> Result<()> {
        self.handle.resize(rows, cols)
    }
}

impl ExecHandle {
    pub async fn wait(&mut self) -> Result<ExecExit> {
        let ended = self.ended.wait_for(Option::is_some).await;
        match ended.ok().and_then(|ended| ended.clone()) {
            Some(outcome) => outcome,
            None => Err(RuntimeError::protocol("the exec's connection ended without an answer")),
        }
    }

    pub async fn signal(&self, signal: i32, whole_tree: bool) -> Result<()> {
        // An exec that has ended takes no signal, which is what was wanted.
        let _ = self.requests.send(Request::Signal { signal, whole_tree }).await;
        Ok(())
    }

    pub fn resize(&self, rows: u16, cols: u16) -> Result<()> {
        let terminal =
            self.terminal.as_ref().ok_or_else(|| RuntimeError::invalid("the exec has no terminal"))?;
        let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(terminal, size).at("resize", "cannot resize the terminal")
    }
}

/// Owns the connection: forwards signals, publishes the end, and leaves when nobody holds the exec.
async fn drive(
    mut connection: Connection,
    mut queue: mpsc::Receiver<Request>,
    publish: watch::Sender<Ended>,
) {
    let outcome = loop {
        tokio::select! {
            answer = connection.receive() => match answer {
                Ok((Reply::Exited(exit), _)) => break Ok(exit),
                Ok((Reply::Failed(error), _)) => break Err(error),
                Ok((Reply::Done, _)) => {}
                Ok((reply, _)) => break Err(unexpected(&reply)),
                Err(error) => break Err(error),
            },
            request = queue.recv() => match request {
                Some(request) => if let Err(error) = connection.send(&request, &[], Vec::new()).await {
                    break Err(error);
                },
                None => break Err(RuntimeError::protocol("the exec was dropped")),
            },
        }
    };
    publish.send_replace(Some(outcome));
}

/// Our end and the process's end of one stream.
fn split(stream: Stdio, input: bool) -> Result<(Option<OwnedFd>, Option<OwnedFd>)> {
    match stream {
        Stdio::Null => Ok((None, None)),
        Stdio::Fd(fd) => Ok((None, Some(fd))),
        Stdio::Piped => {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC).at("exec", "cannot make a pipe")?;
            Ok(if input { (Some(write), Some(read)) } else { (Some(read), Some(write)) })
        }
    }
}

fn watched(fd: OwnedFd) -> Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&fd, true).at("exec", "cannot prepare a stream")?;
    // SAFETY: an `OwnedFd` gives the same descriptor for all its life, and it is closed with the `AsyncFd`.
    unsafe { AsyncFd::register(fd) }.at("exec", "cannot watch a stream")
}

/// The writing end of an exec's stdin, or its terminal.
#[derive(Debug)]
pub struct ExecInput {
    fd: AsyncFd<OwnedFd>,
    /// A terminal has no end of its own; it is told by a character.
    is_terminal: bool,
}

impl ExecInput {
    fn new(fd: OwnedFd, is_terminal: bool) -> Result<Self> {
        Ok(Self { fd: watched(fd)?, is_terminal })
    }
}

/// What a terminal takes as the end of its input, at the start of a line.
const END_OF_TRANSMISSION: u8 = 4;

impl AsyncWrite for ExecInput {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.fd.poll_write_ready(cx))?;
            if let Ok(result) = guard.try_io(|fd| Ok(rustix::io::write(fd, buf)?)) {
                return Poll::Ready(result);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Closing a pipe is what gives the end of file, and that is done by dropping; a terminal is told.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_terminal {
            ready!(self.as_mut().poll_write(cx, &[END_OF_TRANSMISSION]))?;
            self.is_terminal = false;
        }
        Poll::Ready(Ok(()))
    }
}

/// The reading end of an exec's output. It ends when the exec has ended and the pipe is empty, even if a
/// process left in the background still holds the other end.
pub struct ExecOutput {
    fd: AsyncFd<OwnedFd>,
    exit: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    exited: bool,
}

impl std::fmt::Debug for ExecOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecOutput").field("exited", &self.exited).finish_non_exhaustive()
    }
}

impl ExecOutput {
    fn new(fd: OwnedFd, mut ended: watch::Receiver<Ended>) -> Result<Self> {
        let exit = Box::pin(async move {
            let _ = ended.wait_for(Option::is_some).await;
        });
        Ok(Self { fd: watched(fd)?, exit, exited: false })
    }

    fn read_now(&self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        match rustix::io::read(self.fd.get_ref(), buf.initialize_unfilled()) {
            Ok(count) => {
                buf.advance(count);
                Ok(())
            }
            // A terminal whose last process has gone answers with an error, not with an end.
            Err(Errno::IO) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsyncRead for ExecOutput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.exited {
                return match self.read_now(buf) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Ready(Ok(())),
                    result => Poll::Ready(result),
                };
            }
            match self.fd.poll_read_ready(cx) {
                Poll::Ready(guard) => {
                    let mut guard = guard?;
                    match self.read_now(buf) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                        result => return Poll::Ready(result),
                    }
                }
                Poll::Pending => {
                    ready!(self.exit.as_mut().poll(cx));
                    self.exited = true;
                }
            }
        }
    }
}
