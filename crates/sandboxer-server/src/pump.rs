//! A running command as a sequence of pieces: output as it comes, then how it ended.

use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use sandboxer_core::Result;
use sandboxer_core::exec::{BoxRead, BoxWrite, EXIT_TIMED_OUT, ExecOutcome, ExecSession};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, Sleep};

/// A read starts small, since most commands say little, and grows when they do not.
const FIRST_READ: usize = 4 << 10;
const NEXT_READ: usize = 64 << 10;
/// After the command ended, how long a silent stream is listened to. Backends end the streams with the command; this
/// is for those whose background children hold them open.
const SILENCE: Duration = Duration::from_millis(250);
/// The same for a stream that does not fall silent.
const LONGEST_DRAIN: Duration = Duration::from_secs(5);

pub(crate) enum Piece {
    Stdout(Bytes),
    Stderr(Bytes),
    /// Nothing comes after it.
    Exit(ExecOutcome),
}

/// Dropping it ends the command.
pub(crate) struct Pump {
    stdout: Source,
    stderr: Source,
    waiting: Option<BoxFuture<'static, Result<ExecOutcome>>>,
    feeding: Option<BoxFuture<'static, ()>>,
    ended: Option<Ended>,
}

struct Ended {
    outcome: ExecOutcome,
    give_up: Instant,
    silence: Pin<Box<Sleep>>,
}

impl Pump {
    /// Feeds `input` and then its end, if the session takes input at all.
    pub(crate) fn new(mut session: ExecSession, input: Option<String>) -> Self {
        let feeding = match (session.stdin.take(), input) {
            (Some(stdin), Some(text)) => Some(Box::pin(feed(stdin, text)) as BoxFuture<'static, ()>),
            _ => None,
        };
        let control = session.control;
        Self {
            stdout: Source::new(Some(session.stdout)),
            stderr: Source::new(session.stderr),
            waiting: Some(Box::pin(async move { control.wait().await })),
            feeding,
            ended: None,
        }
    }

    /// The next piece. Nothing is lost when the future is dropped before it is ready.
    pub(crate) async fn next(&mut self) -> Result<Piece> {
        loop {
            if let Some(ended) =
                self.ended.as_ref().filter(|_| self.stdout.is_done() && self.stderr.is_done())
            {
                return Ok(Piece::Exit(ended.outcome));
            }
            tokio::select! {
                data = self.stdout.read() => if let Some(data) = data {
                    self.heard();
                    return Ok(Piece::Stdout(data));
                },
                data = self.stderr.read() => if let Some(data) = data {
                    self.heard();
                    return Ok(Piece::Stderr(data));
                },
                outcome = resolve(&mut self.waiting) => self.ended = Some(Ended::new(outcome?)),
                () = resolve(&mut self.feeding) => {}
                () = silence(&mut self.ended) => {
                    self.stdout.close();
                    self.stderr.close();
                }
            }
        }
    }

    fn heard(&mut self) {
        if let Some(ended) = &mut self.ended {
            let until = (Instant::now() + SILENCE).min(ended.give_up);
            ended.silence.as_mut().reset(until);
        }
    }
}

impl Ended {
    fn new(mut outcome: ExecOutcome) -> Self {
        if outcome.timed_out {
            outcome.exit_code = EXIT_TIMED_OUT;
        }
        let now = Instant::now();
        let silence = Box::pin(tokio::time::sleep_until(now + SILENCE));
        Self { outcome, give_up: now + LONGEST_DRAIN, silence }
    }
}

/// One output, read into a buffer that is handed on without a copy.
struct Source {
    stream: Option<BoxRead>,
    buffer: BytesMut,
    size: usize,
}

impl Source {
    fn new(stream: Option<BoxRead>) -> Self {
        Self { stream, buffer: BytesMut::new(), size: FIRST_READ }
    }

    fn is_done(&self) -> bool {
        self.stream.is_none()
    }

    fn close(&mut self) {
        self.stream = None;
    }

    /// `None` at the end, and never ready after it. A stream that breaks has ended; the outcome says why.
    async fn read(&mut self) -> Option<Bytes> {
        let Some(stream) = &mut self.stream else { return std::future::pending().await };
        self.buffer.reserve(self.size);
        match stream.read_buf(&mut self.buffer).await {
            Ok(count @ 1..) => {
                if count >= self.size {
                    self.size = NEXT_READ;
                }
                Some(self.buffer.split().freeze())
            }
            Ok(_) | Err(_) => {
                self.stream = None;
                None
            }
        }
    }
}

/// The future's value, once; never ready without one.
async fn resolve<T>(slot: &mut Option<BoxFuture<'static, T>>) -> T {
    let Some(future) = slot else { return std::future::pending().await };
    let value = future.await;
    *slot = None;
    value
}

async fn silence(ended: &mut Option<Ended>) {
    match ended {
        Some(ended) => ended.silence.as_mut().await,
        None => std::future::pending().await,
    }
}

/// A command that does not want its input is no failure of ours.
async fn feed(mut stdin: BoxWrite, text: String) {
    if stdin.write_all(text.as_bytes()).await.is_ok() {
        let _ = stdin.shutdown().await;
    }
}
