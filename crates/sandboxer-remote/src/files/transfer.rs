//! Contents on their way: streams whose breaks are not taken for ends.

use std::sync::Arc;

use bytes::Bytes;
use sandboxer_core::exec::{BoxRead, ExecControl};
use sandboxer_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;

use super::{Files, scripts, succeed, untar};
use crate::command::{Command, Output, Stdin};
use crate::remote::{Remote, keep};

const CHUNK: usize = 64 << 10;
/// A file up to this size travels with its length, in one step.
const SMALL: usize = 1 << 20;
/// Last words that are kept of a transfer.
const WORDS: usize = 4_096;

/// The output of a command as a stream. What can be known before the first byte is an error here and now; what goes
/// wrong later ends the stream with an error instead of a quiet end.
pub(super) async fn stream_out(remote: &Remote, command: Command, path: &str) -> Result<BoxRead> {
    let session = remote.start(command).await?;
    let stderr = session.stderr.unwrap_or_else(|| Box::pin(tokio::io::empty()));
    let mut out = Outgoing {
        stdout: session.stdout,
        words: tokio::spawn(keep(stderr, WORDS)),
        control: session.control,
        path: path.to_owned(),
    };
    let first = out.chunk().await.map_err(broken)?;
    if first.is_empty() {
        out.finish().await?;
        return Ok(Box::pin(tokio::io::empty()));
    }
    let rest = futures::stream::try_unfold(Some(out), |state| async move {
        let Some(mut out) = state else { return Ok(None) };
        let chunk = out.chunk().await?;
        if !chunk.is_empty() {
            return Ok(Some((chunk, Some(out))));
        }
        out.finish().await.map_err(|error| std::io::Error::other(error.chain().join(": ")))?;
        Ok::<_, std::io::Error>(None)
    });
    let rest = tokio_util::io::StreamReader::new(Box::pin(rest));
    Ok(Box::pin(std::io::Cursor::new(first).chain(rest)))
}

struct Outgoing {
    stdout: BoxRead,
    words: JoinHandle<Result<(Vec<u8>, bool)>>,
    control: Arc<dyn ExecControl>,
    path: String,
}

impl Outgoing {
    async fn chunk(&mut self) -> std::io::Result<Bytes> {
        let mut chunk = vec![0; CHUNK];
        let count = self.stdout.read(&mut chunk).await?;
        chunk.truncate(count);
        Ok(chunk.into())
    }

    async fn finish(self) -> Result<()> {
        let outcome = self.control.wait().await?;
        let stderr = self.words.await.ok().and_then(Result::ok).unwrap_or_default().0;
        let output = Output { outcome, stdout: Vec::new(), stderr, truncated: false };
        // A tar of a tree that somebody works in is a tar all the same.
        let lively = outcome.exit_code == 1
            && ["changed as we read it", "removed before we read it"]
                .iter()
                .any(|words| output.last_words().contains(words));
        if lively { Ok(()) } else { succeed(&self.path, output).map(drop) }
    }
}

/// A small file in one step; a large one into a temporary file, which is then published.
pub(super) async fn write(files: &Files, path: &str, mode: u32, mut data: BoxRead) -> Result<()> {
    let temporary = format!(".sandboxer-{}.tmp", crate::remote::nonce()?);
    let mode = format!("{:04o}", mode & 0o7777);
    let mut start = Vec::new();
    (&mut data).take(SMALL as u64 + 1).read_to_end(&mut start).await.map_err(source_broke)?;
    if start.len() <= SMALL {
        let length = start.len().to_string();
        let command = files.command(scripts::WRITE, path, &[&temporary, &length, &mode])?;
        let output = files.remote.output(command.stdin(Stdin::Bytes(start)), WORDS).await?;
        return succeed(path, output).map(drop);
    }
    let staged = async {
        let command = files.command(scripts::WRITE_STAGE, path, &[&temporary])?;
        let source = Box::pin(std::io::Cursor::new(start).chain(data));
        let (sent, output) = feed(&files.remote, command, source).await?;
        succeed(path, output)?;
        let length = sent.to_string();
        let command = files.command(scripts::WRITE_PUBLISH, path, &[&temporary, &length, &mode])?;
        succeed(path, files.remote.output(command, WORDS).await?).map(drop)
    };
    let written = staged.await;
    if written.is_err() {
        // What cannot be reached now goes with the sandbox.
        let command = files.command(scripts::WRITE_DISCARD, path, &[&temporary])?;
        let _ = files.remote.output(command, WORDS).await;
    }
    written
}

/// Only what has been looked at goes to the host.
pub(super) async fn tar_in(files: &Files, path: &str, tar: BoxRead) -> Result<()> {
    let (clean, verdict) = untar::filter(tar)?;
    let fed = feed(&files.remote, files.command(scripts::TAR_IN, path, &[])?, clean).await;
    // The reason why the archive broke off is better than that it did.
    verdict
        .await
        .map_err(|source| Error::new(ErrorKind::Internal, "a check broke off").with_source(source))??;
    succeed(path, fed?.1).map(drop)
}

/// Feeds a command from a stream. A source that breaks ends the command with everything, and is an error.
async fn feed(remote: &Remote, command: Command, mut source: BoxRead) -> Result<(u64, Output)> {
    let mut session = remote.start(command.stdin(Stdin::Piped)).await?;
    let stdin = session.stdin.take();
    let stderr = session.stderr.take().unwrap_or_else(|| Box::pin(tokio::io::empty()));
    let (stdout, control) = (session.stdout, session.control);
    let pump = async {
        let Some(mut stdin) = stdin else { return Ok(0) };
        let mut chunk = vec![0; CHUNK];
        let mut sent = 0;
        loop {
            let count = source.read(&mut chunk).await.map_err(source_broke)?;
            // A command that reads no more has a reason, and its exit code tells it.
            if count == 0 || stdin.write_all(&chunk[..count]).await.is_err() {
                let _ = stdin.shutdown().await;
                return Ok::<u64, Error>(sent);
            }
            sent += count as u64;
        }
    };
    let collect = async {
        let (stdout, stderr) = tokio::join!(keep(stdout, WORDS), keep(stderr, WORDS));
        Ok::<_, Error>((stdout?.0, stderr?.0))
    };
    let (sent, (stdout, stderr), outcome) = tokio::try_join!(pump, collect, control.wait())?;
    Ok((sent, Output { outcome, stdout, stderr, truncated: false }))
}

fn broken(source: std::io::Error) -> Error {
    Error::new(ErrorKind::BackendFailed, "the host broke off").with_source(source)
}

fn source_broke(source: std::io::Error) -> Error {
    Error::new(ErrorKind::BackendFailed, "the data to write broke off").with_source(source)
}
