//! Files, by small scripts inside: paths are resolved by the container's own kernel view, as the sandbox's own user.

use std::future::Future as _;

use sandboxer_core::exec::{BoxRead, BoxWrite, ExecSession};
use sandboxer_core::files::{FileInfo, validate_path};
use sandboxer_core::{Error, ErrorKind, ExecId, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::exec::{Place, WORKSPACE};
use crate::inside::{self, Captured};
use crate::stat;

const WRITE: &str = include_str!("scripts/write.sh");
const LIST: &str = include_str!("scripts/list.sh");
const STAT: &str = include_str!("scripts/stat.sh");
const DELETE: &str = include_str!("scripts/delete.sh");
const READ: &str = "[ -e \"$1\" ] || exit 44; [ -f \"$1\" ] || exit 45; exec cat -- \"$1\"";
const MKDIR: &str = "exec mkdir -p -- \"$1\"";
const RENAME: &str = "[ -e \"$1\" ] || [ -L \"$1\" ] || exit 44; exec mv -fT -- \"$1\" \"$2\"";

/// The absolute path; relative ones are below the workspace.
pub(crate) fn absolute(path: &str) -> Result<String> {
    validate_path(path)?;
    let full = if path.starts_with('/') { path.to_owned() } else { format!("{WORKSPACE}/{path}") };
    let trimmed = full.trim_end_matches('/');
    Ok(if trimmed.is_empty() { "/".to_owned() } else { trimmed.to_owned() })
}

/// The name of a path in a message.
pub(crate) fn shown(path: &str) -> String {
    sandboxer_core::suggest::printable(path).to_string()
}

impl Place {
    async fn file_script(&self, script: &str, args: &[&str]) -> Result<Captured> {
        inside::run(self, &self.user, script, args).await
    }

    pub(crate) async fn file_stat(&self, path: &str) -> Result<FileInfo> {
        let (path, mark) = (absolute(path)?, ExecId::generate().to_string());
        let doing = format!("look at `{}`", shown(&path));
        let answer = self.file_script(STAT, &[&mark, &path]).await?.ok(&doing)?;
        let parent = path.rsplit_once('/').map_or("/", |(parent, _)| parent);
        let mut entries = stat::parse(&answer, &mark, parent);
        entries
            .pop()
            .ok_or_else(|| Error::new(ErrorKind::BackendFailed, format!("cannot {doing}: no answer")))
    }

    pub(crate) async fn file_list(&self, path: &str) -> Result<Vec<FileInfo>> {
        let (path, mark) = (absolute(path)?, ExecId::generate().to_string());
        let doing = format!("list `{}`", shown(&path));
        let answer = self.file_script(LIST, &[&mark, &path]).await?.ok(&doing)?;
        Ok(stat::parse(&answer, &mark, &path))
    }

    pub(crate) async fn file_read(&self, path: &str) -> Result<BoxRead> {
        let path = absolute(path)?;
        let launch = self.script(&self.user, READ, &[&path]);
        stream_out(self.start(launch).await?, &format!("read `{}`", shown(&path))).await
    }

    pub(crate) async fn file_write(&self, path: &str, mode: u32, data: BoxRead) -> Result<()> {
        let path = absolute(path)?;
        // The end of the data: without it the script takes the stream for broken off, and leaves what was there.
        let end = format!("{}-{}", ExecId::generate(), ExecId::generate());
        let mode = format!("{:o}", mode & 0o7777);
        let launch = self.script(&self.user, WRITE, &[&path, &mode, &end]);
        self.stream_in(launch, data, end.as_bytes(), &format!("write `{}`", shown(&path))).await
    }

    pub(crate) async fn file_delete(&self, path: &str, recursive: bool) -> Result<()> {
        let path = absolute(path)?;
        let how = if recursive { "all" } else { "one" };
        self.file_script(DELETE, &[&path, how]).await?.ok(&format!("delete `{}`", shown(&path))).map(drop)
    }

    pub(crate) async fn file_mkdir(&self, path: &str) -> Result<()> {
        let path = absolute(path)?;
        self.file_script(MKDIR, &[&path]).await?.ok(&format!("make the folder `{}`", shown(&path))).map(drop)
    }

    pub(crate) async fn file_rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (absolute(from)?, absolute(to)?);
        self.file_script(RENAME, &[&from, &to]).await?.ok(&format!("move `{}`", shown(&from))).map(drop)
    }

    /// Feeds a script until it ends or everything is said.
    pub(crate) async fn stream_in(
        &self,
        mut launch: crate::exec::Launch,
        data: BoxRead,
        end: &[u8],
        doing: &str,
    ) -> Result<()> {
        launch.stdin = true;
        let mut session = self.start(launch).await?;
        let Some(stdin) = session.stdin.take() else {
            return Err(Error::new(ErrorKind::Internal, "a script has no input"));
        };
        let feed = feed(data, stdin, end);
        let ended = inside::capture(session);
        tokio::pin!(feed, ended);
        // A script that ends early needs no more data; its own words say why.
        let (fed, ended) = tokio::select! {
            fed = &mut feed => (fed, ended.await?),
            ended = &mut ended => (Ok(()), ended?),
        };
        match fed {
            Err(source) if ended.code != 0 => {
                Err(Error::new(ErrorKind::InvalidInput, format!("cannot {doing}: the data broke off"))
                    .with_source(source))
            }
            _ => ended.ok(doing).map(drop),
        }
    }
}

/// Passes data on and then its end. Data that breaks off closes the input without the end.
async fn feed(mut data: BoxRead, mut stdin: BoxWrite, end: &[u8]) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match data.read(&mut buffer).await {
            Ok(0) => break,
            // Who does not take it says why at its end.
            Ok(count) if stdin.write_all(&buffer[..count]).await.is_err() => return Ok(()),
            Ok(_) => {}
            Err(error) => {
                let _ = stdin.shutdown().await;
                return Err(error);
            }
        }
    }
    let _ = stdin.write_all(end).await;
    let _ = stdin.shutdown().await;
    Ok(())
}

/// A script's output as a stream. A failure before the first byte is the answer; a later one breaks the stream.
pub(crate) async fn stream_out(session: ExecSession, doing: &str) -> Result<BoxRead> {
    let ExecSession { stdin, mut stdout, stderr, control } = session;
    drop(stdin);
    let complaint = tokio::spawn(inside::stderr_of(stderr));
    let mut first = vec![0; 64 * 1024];
    let count = stdout.read(&mut first).await.unwrap_or_default();
    first.truncate(count);
    let doing = doing.to_owned();
    let outcome = async move {
        let code = control.wait().await?.exit_code;
        let complaint = complaint.await.unwrap_or_default();
        if code == 0 { Ok(()) } else { Err(inside::failure(code, &complaint, &doing)) }
    };
    if first.is_empty() {
        outcome.await?;
        return Ok(Box::pin(tokio::io::empty()));
    }
    let (mut write, read) = tokio::io::duplex(64 * 1024);
    // A task of its own would outlive the reader; this one ends when the reader is gone.
    let (fail, failed) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        if write.write_all(&first).await.is_err() || tokio::io::copy(&mut stdout, &mut write).await.is_err() {
            return;
        }
        if let Err(error) = outcome.await {
            let _ = fail.send(error);
        }
    });
    Ok(Box::pin(Honest { inner: Box::pin(read), failed: Some(failed) }))
}

/// Ends with an error where the script did.
struct Honest {
    inner: BoxRead,
    failed: Option<tokio::sync::oneshot::Receiver<Error>>,
}

impl tokio::io::AsyncRead for Honest {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        use std::task::Poll;
        let before = buffer.filled().len();
        std::task::ready!(self.inner.as_mut().poll_read(context, buffer))?;
        if buffer.filled().len() > before || buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let Some(failed) = self.failed.as_mut() else { return Poll::Ready(Ok(())) };
        let verdict = std::task::ready!(std::pin::Pin::new(failed).poll(context));
        self.failed = None;
        match verdict {
            Ok(error) => Poll::Ready(Err(std::io::Error::other(error))),
            Err(_) => Poll::Ready(Ok(())),
        }
    }
}
