//! Finds the bootstrap's marks in the output of a host, and gives the rest on as it is.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use sandboxer_core::exec::BoxRead;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf};
use tokio::sync::oneshot;

use crate::bootstrap::Shell;

/// A login shell that says more than this before our first line is broken.
const MOST_NOISE: usize = 64 << 10;
const CHUNK: usize = 32 << 10;

/// stdout from the line after the mark on.
pub(crate) struct AfterMark {
    inner: BoxRead,
    mark: Vec<u8>,
    /// What was read so far; after the mark was found, what is still to be given.
    held: Vec<u8>,
    given: usize,
    found: bool,
    /// Dropped with the stream: nobody wants more then.
    _wanted: oneshot::Sender<()>,
}

impl AfterMark {
    /// The stream, and the news that it was dropped.
    pub(crate) fn new(inner: BoxRead, nonce: &str) -> (Self, oneshot::Receiver<()>) {
        let (wanted, dropped) = oneshot::channel();
        let mark = format!("{nonce}\n").into_bytes();
        (Self { inner, mark, held: Vec::new(), given: 0, found: false, _wanted: wanted }, dropped)
    }
}

impl AsyncRead for AfterMark {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        while !this.found {
            let mut chunk = [0; 4096];
            let mut chunk = ReadBuf::new(&mut chunk);
            ready!(this.inner.as_mut().poll_read(cx, &mut chunk))?;
            if chunk.filled().is_empty() || this.held.len() > MOST_NOISE {
                return Poll::Ready(Ok(()));
            }
            this.held.extend_from_slice(chunk.filled());
            if let Some(at) = find(&this.held, &this.mark) {
                this.found = true;
                this.given = at + this.mark.len();
            }
        }
        if this.given < this.held.len() {
            let count = buf.remaining().min(this.held.len() - this.given);
            buf.put_slice(&this.held[this.given..this.given + count]);
            this.given += count;
            return Poll::Ready(Ok(()));
        }
        this.inner.as_mut().poll_read(cx, buf)
    }
}

/// What the first mark on stderr says: who the shell is, or why it did not start.
#[derive(Debug)]
pub(crate) enum Start {
    Running(Shell),
    NoDirectory,
    /// It never came; these are the words that came instead.
    Never(String),
}

/// What the end of stderr says.
#[derive(Debug)]
pub(crate) enum End {
    Exit(i32),
    /// The stream ended without a word.
    Silent,
}

pub(crate) struct Marks {
    pub(crate) start: oneshot::Receiver<Start>,
    pub(crate) end: oneshot::Receiver<End>,
    pub(crate) stderr: DuplexStream,
}

/// Takes stderr apart into what the bootstrap says and what the command says.
pub(crate) fn watch(stderr: BoxRead, nonce: String) -> Marks {
    let (start_tx, start) = oneshot::channel();
    let (end_tx, end) = oneshot::channel();
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    tokio::spawn(async move {
        let end = sort(stderr, nonce.as_bytes(), start_tx, ours).await;
        let _ = end_tx.send(end);
    });
    Marks { start, end, stderr: theirs }
}

async fn sort(
    mut source: BoxRead,
    nonce: &[u8],
    start: oneshot::Sender<Start>,
    mut out: DuplexStream,
) -> End {
    let mut held = Vec::new();
    let started = loop {
        if let Some(line) = take_line(&mut held, nonce) {
            break line;
        }
        if held.len() > MOST_NOISE || !more(&mut source, &mut held).await {
            let _ = start.send(Start::Never(String::from_utf8_lossy(&held).trim().to_owned()));
            return End::Silent;
        }
    };
    held = started.rest;
    let _ = start.send(Shell::parse(&started.line).map_or(Start::NoDirectory, Start::Running));
    // The reader may be gone, but the mark at the end still counts.
    let mut wanted = true;
    loop {
        if let Some(ended) = take_line(&mut held, nonce) {
            if wanted {
                let _ = out.write_all(&ended.before).await;
            }
            return ended.line.trim().parse().map_or(End::Silent, End::Exit);
        }
        // A mark may have arrived in part: keep what could be its beginning.
        let keep = match find(&held, nonce) {
            Some(at) => held.len() - at,
            None => (0..nonce.len().min(held.len() + 1))
                .rev()
                .find(|count| held.ends_with(&nonce[..*count]))
                .unwrap_or(0),
        };
        let give = held.len() - keep;
        if give > 0 {
            wanted = wanted && out.write_all(&held[..give]).await.is_ok();
            held.drain(..give);
        }
        if !more(&mut source, &mut held).await {
            let _ = out.write_all(&held).await;
            return End::Silent;
        }
    }
}

struct Marked {
    before: Vec<u8>,
    /// What follows the mark on its line.
    line: String,
    rest: Vec<u8>,
}

fn take_line(held: &mut Vec<u8>, nonce: &[u8]) -> Option<Marked> {
    let at = find(held, nonce)?;
    let after = at + nonce.len();
    let length = held[after..].iter().position(|byte| *byte == b'\n')?;
    let line = String::from_utf8_lossy(&held[after..after + length]).into_owned();
    let rest = held[after + length + 1..].to_vec();
    let mut before = std::mem::take(held);
    before.truncate(at);
    Some(Marked { before, line, rest })
}

async fn more(source: &mut BoxRead, held: &mut Vec<u8>) -> bool {
    let length = held.len();
    held.resize(length + CHUNK, 0);
    let count = source.read(&mut held[length..]).await.unwrap_or(0);
    held.truncate(length + count);
    count > 0
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
