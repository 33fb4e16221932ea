//! Content that streams in or out of a container, with an end that is told apart from a break.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use sandboxer_core::exec::{BoxRead, ExecOutcome};
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::{Command, Output, Remote, Stdin};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};

/// How much of a broken command's words is kept.
const WORDS: usize = 16 << 10;

/// The command's output after its first line break, by which it says that all is well; its end otherwise.
pub(super) async fn out(remote: &Remote, command: Command) -> Result<std::result::Result<BoxRead, Output>> {
    let mut session = remote.start(command).await?;
    let stderr = session.stderr.take();
    let words = tokio::spawn(async move {
        let mut words = Vec::new();
        if let Some(stderr) = stderr {
            let _ = stderr.take(WORDS as u64).read_to_end(&mut words).await;
        }
        words
    });
    let mut first = [0];
    let well = matches!(session.stdout.read(&mut first).await, Ok(1));
    if !well {
        let outcome = session.control.wait().await?;
        let stderr = words.await.unwrap_or_default();
        return Ok(Err(Output { outcome, stdout: Vec::new(), stderr, truncated: false }));
    }
    let control = session.control;
    let end: End = Box::pin(async move { control.wait().await });
    Ok(Ok(Box::pin(Checked { inner: session.stdout, end: Some(end) })))
}

type End = Pin<Box<dyn Future<Output = Result<ExecOutcome>> + Send>>;

/// A stream that is an error at its end when the command behind it failed.
struct Checked {
    inner: BoxRead,
    end: Option<End>,
}

impl AsyncRead for Checked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match self.inner.as_mut().poll_read(cx, buf) {
            Poll::Ready(Ok(())) if buf.filled().len() == before && buf.remaining() > 0 => {}
            other => return other,
        }
        let Some(end) = &mut self.end else { return Poll::Ready(Ok(())) };
        let outcome = std::task::ready!(end.as_mut().poll(cx));
        self.end = None;
        Poll::Ready(match outcome {
            Ok(outcome) if outcome.exit_code == 0 => Ok(()),
            Ok(outcome) => {
                Err(io::Error::other(format!("the container broke off with code {}", outcome.exit_code)))
            }
            Err(error) => Err(io::Error::other(error)),
        })
    }
}

/// How long a command may take to end after its input broke off.
const LAST_WORDS: std::time::Duration = std::time::Duration::from_secs(15);

/// Feeds the data to the command. An error of the data itself is an error here, after the command was ended.
pub(super) async fn into(remote: &Remote, command: Command, mut data: BoxRead) -> Result<Output> {
    let session = remote.start(command.stdin(Stdin::Piped)).await?;
    let Some(mut stdin) = session.stdin else {
        return Err(Error::new(ErrorKind::Internal, "a command without input"));
    };
    let feed = async move {
        let mut chunk = vec![0; 64 << 10];
        loop {
            let count = data.read(&mut chunk).await.map_err(|source| {
                Error::new(ErrorKind::InvalidInput, "the data broke off").with_source(source)
            })?;
            if count == 0 {
                break;
            }
            // A command that has heard enough says so by its exit code.
            if stdin.write_all(&chunk[..count]).await.is_err() {
                break;
            }
        }
        let _ = stdin.shutdown().await;
        Ok::<(), Error>(())
    };
    let stderr = session.stderr.unwrap_or_else(|| Box::pin(tokio::io::empty()));
    let listen = async move {
        let mut words = Vec::new();
        let mut stderr = stderr.take(WORDS as u64);
        let _ = stderr.read_to_end(&mut words).await;
        words
    };
    let rest = async { tokio::join!(listen, session.control.wait()) };
    tokio::pin!(rest);
    tokio::pin!(feed);
    let mut fed = None;
    let (words, outcome) = loop {
        tokio::select! {
            done = &mut rest => break done,
            done = &mut feed, if fed.is_none() => {
                if let Err(error) = done {
                    // Its input has ended. What it still writes must not come after whoever cleans up.
                    let _ = tokio::time::timeout(LAST_WORDS, &mut rest).await;
                    return Err(error);
                }
                fed = Some(());
            }
        }
    };
    Ok(Output { outcome: outcome?, stdout: Vec::new(), stderr: words, truncated: false })
}
