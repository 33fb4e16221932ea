//! One command inside, connected to this process: its streams, our signals, our terminal.

use std::sync::Arc;
use std::time::Duration;

use sandboxer_core::exec::{BoxRead, BoxWrite, EXIT_TIMED_OUT, ExecControl, ExecOutcome, ExecSession};
use sandboxer_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;

use crate::printer::Printer;
use crate::signals::{SIGKILL, Signals, window_changes};
use crate::status::{ExitStatus, Outcome, io_error};
use crate::terminal::{self, RawMode};

/// After the command ended, how long a silent stream is listened to: children in the background may hold it open.
const SILENCE: Duration = Duration::from_millis(250);
const CHUNK: usize = 64 << 10;

/// How a connected command ended.
pub(super) enum Ended {
    Exited(ExecOutcome),
    /// Nobody reads our output any more; the command was ended.
    Unread,
}

/// Whether our stdin and our terminal are the command's.
#[derive(Clone, Copy)]
pub(super) struct Connection {
    pub(super) stdin: bool,
    pub(super) tty: bool,
}

/// Runs a started command to its end with our streams as its own.
pub(super) async fn connect(
    session: ExecSession,
    connection: Connection,
    printer: &Printer,
) -> Outcome<Ended> {
    // Restored when this function is left, whichever way.
    let _raw = (connection.tty && connection.stdin).then(RawMode::enter).flatten();
    let outputs = (printer.stdout_stream(), printer.stderr_stream());
    let feeding = session.stdin.is_some() && connection.stdin;
    run(session, outputs, feeding, connection.tty).await
}

/// What a command wrote, each stream bounded, for one JSON document.
pub(super) async fn collect(session: ExecSession, stdin: bool, limit: usize) -> Outcome<(Ended, Kept, Kept)> {
    let (mut out, mut err) = (Kept::new(limit), Kept::new(limit));
    let ended = run(session, (&mut out, &mut err), stdin, false).await?;
    Ok((ended, out, err))
}

async fn run<O, E>(session: ExecSession, (out, err): (O, E), feeding: bool, tty: bool) -> Outcome<Ended>
where
    O: AsyncWrite + Unpin,
    E: AsyncWrite + Unpin,
{
    let ExecSession { stdin, stdout, stderr, control } = session;
    // Before the first output: whoever sees it may answer with a signal.
    let signals = Signals::new()?;
    let feeder = match stdin {
        Some(stdin) if feeding => Some(tokio::spawn(feed(stdin))),
        // Dropped without input: the command reads the end at once.
        _ => None,
    };
    let (ended, end) = watch::channel(false);
    let waiting = async {
        let outcome = control.wait().await;
        ended.send_replace(true);
        outcome.map_err(Broken::Other)
    };
    let stdout_copy = copy(stdout, out, end.clone());
    let stderr_copy = async {
        match stderr {
            Some(stderr) => copy(stderr, err, end.clone()).await,
            None => Ok(()),
        }
    };
    let outcome = tokio::select! {
        // The first that breaks ends all: what is dropped with the session ends the command.
        done = async { tokio::try_join!(waiting, stdout_copy, stderr_copy) } => match done {
            Ok((outcome, (), ())) => Ok(Ended::Exited(outcome)),
            Err(Broken::Unread) => Ok(Ended::Unread),
            Err(Broken::Other(error)) => Err(error.into()),
        },
        error = watch_signals(signals, &control) => Err(error.into()),
        error = watch_size(&control, tty) => Err(error.into()),
    };
    if let Some(feeder) = feeder {
        feeder.abort();
    }
    outcome
}

enum Broken {
    Unread,
    Other(Error),
}

/// Copies to the end of the stream; once the command has ended, to the first silence.
async fn copy(
    mut from: BoxRead,
    mut to: impl AsyncWrite + Unpin,
    mut end: watch::Receiver<bool>,
) -> Result<(), Broken> {
    let mut chunk = vec![0_u8; CHUNK];
    loop {
        let ended = *end.borrow_and_update();
        let read = tokio::select! {
            biased;
            read = from.read(&mut chunk) => read,
            () = tokio::time::sleep(SILENCE), if ended => return Ok(()),
            _ = end.changed(), if !ended => continue,
        };
        let count = match read {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            // A terminal whose last process is gone reads so; how the command ended is told by its outcome.
            Err(_) => return Ok(()),
        };
        let written = async {
            to.write_all(&chunk[..count]).await?;
            to.flush().await
        };
        written.await.map_err(|error| match error.kind() {
            std::io::ErrorKind::BrokenPipe => Broken::Unread,
            _ => Broken::Other(io_error("the output cannot be written", error)),
        })?;
    }
}

/// Our stdin, then its end. A command that does not want it is no failure.
async fn feed(mut to: BoxWrite) {
    let (mut stdin, mut chunk) = (tokio::io::stdin(), vec![0_u8; CHUNK]);
    while let Ok(count @ 1..) = stdin.read(&mut chunk).await {
        if to.write_all(&chunk[..count]).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

/// The first signal goes to the command, the second to everything that it started, the third kills. Never returns
/// but with an error.
async fn watch_signals(mut signals: Signals, control: &Arc<dyn ExecControl>) -> Error {
    let mut count = 0_u32;
    loop {
        let signal = signals.next().await;
        count += 1;
        let (signal, whole_tree) = match count {
            1 => (signal, false),
            2 => (signal, true),
            _ => (SIGKILL, true),
        };
        // One that ended in the meantime has no use for it.
        if let Err(error) = control.signal(signal, whole_tree).await {
            tracing::debug!(error = ?error, "a signal was not passed on");
        }
    }
}

async fn watch_size(control: &Arc<dyn ExecControl>, tty: bool) -> Error {
    if !tty {
        return std::future::pending().await;
    }
    let mut changes = match window_changes() {
        Ok(changes) => changes,
        Err(error) => return error,
    };
    loop {
        changes.recv().await;
        if let Some(size) = terminal::size()
            && let Err(error) = control.resize(size).await
        {
            tracing::debug!(error = ?error, "a new size was not passed on");
        }
    }
}

/// The exit code, with a word on stderr where the code alone would not explain itself.
pub(super) fn status(ended: &Ended, timeout: Option<sandboxer_core::Dur>, printer: &Printer) -> ExitStatus {
    let outcome = match ended {
        Ended::Unread => return ExitStatus::PIPE,
        Ended::Exited(outcome) => outcome,
    };
    if outcome.out_of_memory {
        printer.warn("the memory limit of the sandbox ended the command");
    }
    if outcome.timed_out {
        let after = timeout.map(|timeout| format!(" after {timeout}")).unwrap_or_default();
        let message = format!("the command timed out{after} and was ended with everything it started");
        printer.error(&Error::new(ErrorKind::Timeout, message));
        return ExitStatus::of_command(EXIT_TIMED_OUT);
    }
    ExitStatus::of_command(outcome.exit_code)
}

/// The head and the tail of a stream with a bound on both together.
pub(super) struct Kept {
    limit: usize,
    head: Vec<u8>,
    tail: std::collections::VecDeque<u8>,
    cut: u64,
}

impl Kept {
    fn new(limit: usize) -> Self {
        Self { limit, head: Vec::new(), tail: std::collections::VecDeque::new(), cut: 0 }
    }

    fn push(&mut self, data: &[u8]) {
        let half = self.limit / 2;
        let room = (half - self.head.len()).min(data.len());
        self.head.extend_from_slice(&data[..room]);
        self.tail.extend(&data[room..]);
        let over = self.tail.len().saturating_sub(half);
        self.tail.drain(..over);
        self.cut += over as u64;
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut > 0
    }

    /// As text, with a word in the middle about what is missing.
    pub(super) fn text(self) -> String {
        let mut bytes = self.head;
        if self.cut > 0 {
            bytes.extend_from_slice(format!("\n[… {} bytes cut …]\n", self.cut).as_bytes());
        }
        bytes.extend(self.tail);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl AsyncWrite for Kept {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        data: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        self.get_mut().push(data);
        std::task::Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_cut_and_said() {
        let mut kept = Kept::new(8);
        kept.push(b"abcdefgh");
        assert!(!kept.is_cut());
        kept.push(b"ijkl");
        assert!(kept.is_cut());
        assert_eq!(kept.text(), "abcd\n[… 4 bytes cut …]\nijkl");
    }
}
