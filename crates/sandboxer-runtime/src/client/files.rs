//! File operations: builtin execs whose data runs over stdin and stdout and whose outcome over stderr.

use super::control::Control;
use super::session::{ExecInput, ExecOutput, ExecSession, Stdio};
use crate::error::{ErrorKind, Result, RuntimeError};
use crate::spec::{ExecSpec, FileEntry, FileOp};
use crate::wire::{Outcome, Program};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

/// Most bytes of a listing or an outcome.
const MAX_ANSWER: u64 = 64 << 20;

/// The sandbox's files, seen as one of its users.
#[derive(Debug, Clone)]
pub struct Files {
    control: Control,
    user: Option<String>,
}

impl Files {
    pub(crate) fn new(control: Control) -> Self {
        Self { control, user: None }
    }

    #[must_use]
    pub fn as_user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    async fn start(&self, op: FileOp, input: bool) -> Result<ExecSession> {
        op.validate()?;
        let spec = ExecSpec { user: self.user.clone(), ..ExecSpec::default() };
        let stdin = if input { Stdio::Piped } else { Stdio::Null };
        self.control.builtin(spec, Program::File(op), [stdin, Stdio::Piped, Stdio::Piped]).await
    }

    /// Opens a regular file for reading.
    pub async fn read(&self, path: &str, offset: u64, limit: Option<u64>) -> Result<FileReader> {
        self.reader(FileOp::Read { path: path.to_owned(), offset, limit }).await
    }

    /// The whole file, which must not be larger than `max`.
    pub async fn read_all(&self, path: &str, max: usize) -> Result<Vec<u8>> {
        let limit = u64::try_from(max).unwrap_or(u64::MAX);
        let mut reader = self.read(path, 0, Some(limit.saturating_add(1))).await?;
        let mut data = Vec::new();
        reader
            .read_to_end(&mut data)
            .await
            .map_err(|e| RuntimeError::io("read", "cannot read the file", &e))?;
        reader.finish().await?;
        if data.len() > max {
            return Err(RuntimeError::new(
                ErrorKind::TooLarge,
                "read",
                format!("the file is above {max} bytes"),
            ));
        }
        Ok(data)
    }

    /// Opens a file for writing; it appears under its name when the writer is finished, not before.
    pub async fn write(&self, path: &str, mode: Option<u32>, create_parents: bool) -> Result<FileWriter> {
        let op = FileOp::Write { path: path.to_owned(), mode, create_parents };
        self.writer(op, true).await
    }

    pub async fn write_all(
        &self,
        path: &str,
        data: &[u8],
        mode: Option<u32>,
        create_parents: bool,
    ) -> Result<()> {
        let mut writer = self.write(path, mode, create_parents).await?;
        // A write error means that the operation ended early; its outcome says why.
        let _ = writer.write_all(data).await;
        writer.finish().await
    }

    /// A directory's entries, down to `depth` levels (1: the directory itself).
    pub async fn list(&self, path: &str, depth: u32) -> Result<Vec<FileEntry>> {
        self.entries(FileOp::List { path: path.to_owned(), depth }).await
    }

    /// One file, symbolic links not followed.
    pub async fn stat(&self, path: &str) -> Result<FileEntry> {
        let mut entries = self.entries(FileOp::Stat { path: path.to_owned() }).await?;
        entries.pop().ok_or_else(|| RuntimeError::protocol("stat gave no entry"))
    }

    pub async fn delete(&self, path: &str, recursive: bool) -> Result<()> {
        self.run(FileOp::Delete { path: path.to_owned(), recursive }).await
    }

    pub async fn mkdir(&self, path: &str, parents: bool) -> Result<()> {
        self.run(FileOp::Mkdir { path: path.to_owned(), parents }).await
    }

    pub async fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.run(FileOp::Rename { from: from.to_owned(), to: to.to_owned() }).await
    }

    /// A tar archive of a file or directory.
    pub async fn tar_out(&self, path: &str) -> Result<FileReader> {
        self.reader(FileOp::TarOut { path: path.to_owned() }).await
    }

    /// Unpacks a tar archive below a directory, which is made if it is not there.
    pub async fn tar_in(&self, path: &str) -> Result<FileWriter> {
        self.writer(FileOp::TarIn { path: path.to_owned() }, false).await
    }

    async fn run(&self, op: FileOp) -> Result<()> {
        self.reader(op).await?.finish().await
    }

    async fn entries(&self, op: FileOp) -> Result<Vec<FileEntry>> {
        let mut reader = self.reader(op).await?;
        let mut json = Vec::new();
        let read = (&mut reader).take(MAX_ANSWER).read_to_end(&mut json).await;
        reader.finish().await?;
        read.map_err(|e| RuntimeError::io("list", "cannot read the answer", &e))?;
        let entries =
            serde_json::Deserializer::from_slice(&json).into_iter().collect::<serde_json::Result<_>>();
        entries.map_err(|e| RuntimeError::protocol(format!("unreadable listing: {e}")))
    }

    async fn reader(&self, op: FileOp) -> Result<FileReader> {
        let mut session = self.start(op, false).await?;
        let data = session.stdout.take().ok_or_else(|| RuntimeError::protocol("no stdout"))?;
        Ok(FileReader { session, data })
    }

    async fn writer(&self, op: FileOp, framed: bool) -> Result<FileWriter> {
        let mut session = self.start(op, true).await?;
        let data = session.stdin.take();
        Ok(FileWriter { session, data, framed, header: [0; 4], header_left: 0, chunk_left: 0 })
    }
}

/// The operation's own word on how it ended.
async fn outcome(mut session: ExecSession) -> Result<()> {
    let mut text = Vec::new();
    if let Some(stderr) = session.stderr.take() {
        let _ = stderr.take(MAX_ANSWER).read_to_end(&mut text).await;
    }
    let exit = session.wait().await?;
    match serde_json::from_slice(&text) {
        Ok(Outcome::Done) if exit.code == 0 => Ok(()),
        Ok(Outcome::Failed(error)) => Err(error),
        _ => Err(RuntimeError::protocol(format!("the file operation ended with code {}", exit.code))),
    }
}

/// The content of a file or archive. Its end says nothing about success: [`FileReader::finish`] does.
#[derive(Debug)]
pub struct FileReader {
    session: ExecSession,
    data: ExecOutput,
}

impl FileReader {
    pub async fn finish(mut self) -> Result<()> {
        // Whoever does not want the rest must not leave the other side blocked on a full pipe.
        let _ = tokio::io::copy(&mut self.data, &mut tokio::io::sink()).await;
        drop(self.data);
        outcome(self.session).await
    }
}

impl AsyncRead for FileReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.data).poll_read(cx, buf)
    }
}

/// Takes the content of a file or archive. Without [`FileWriter::finish`] the file is not written.
#[derive(Debug)]
pub struct FileWriter {
    session: ExecSession,
    data: Option<ExecInput>,
    /// A file's content goes in chunks with their length before them, and an empty one at the end, so that
    /// a caller that dies in the middle does not leave half a file behind.
    framed: bool,
    header: [u8; 4],
    header_left: usize,
    chunk_left: usize,
}

const CHUNK: usize = 64 << 10;

impl FileWriter {
    pub async fn finish(mut self) -> Result<()> {
        let whole = self.header_left == 0 && self.chunk_left == 0;
        if let Some(mut data) = self.data.take()
            && self.framed
            && whole
        {
            let _ = data.write_all(&0_u32.to_le_bytes()).await;
        }
        outcome(self.session).await
    }
}

impl AsyncWrite for FileWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let this = &mut *self;
        let Some(data) = this.data.as_mut() else {
            return Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into()));
        };
        if !this.framed {
            return Pin::new(data).poll_write(cx, buf);
        }
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if this.chunk_left == 0 && this.header_left == 0 {
            this.chunk_left = buf.len().min(CHUNK);
            this.header = u32::try_from(this.chunk_left).unwrap_or(0).to_le_bytes();
            this.header_left = 4;
        }
        while this.header_left > 0 {
            let part = &this.header[4 - this.header_left..];
            match Pin::new(&mut *data).poll_write(cx, part) {
                Poll::Ready(Ok(count)) => this.header_left -= count,
                other => return other,
            }
        }
        let part = &buf[..buf.len().min(this.chunk_left)];
        match Pin::new(data).poll_write(cx, part) {
            Poll::Ready(Ok(count)) => {
                this.chunk_left -= count;
                Poll::Ready(Ok(count))
            }
            other => other,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
