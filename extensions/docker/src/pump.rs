//! One task per command: passes its output on, keeps its time, and finds out how it ended.

use std::time::Duration;

use sandboxer_core::exec::{EXIT_TIMED_OUT, ExecOutcome};
use sandboxer_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{oneshot, watch};

use crate::errors::{gone, map};
use crate::hijack::{Output, Source};
use crate::signal::Killer;

/// How much output waits for its reader before the command has to.
pub(crate) const BUFFER: usize = 256 * 1024;
/// How long the output of a command that was ended may still take.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How often the engine is asked whether a command with input is over.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long the engine may take to notice that a command has ended.
const NOTICE: Duration = Duration::from_secs(15);
/// How much of the first output is kept, in case that it is the engine's and not the command's.
const FIRST_WORDS: usize = 1024;
/// The engine's exit codes for a command that it could not start.
const NOT_STARTED: [i64; 2] = [126, 127];

pub(crate) struct Pump {
    pub(crate) output: Output,
    pub(crate) stdout: DuplexStream,
    /// Absent with a terminal, whose output has no frames.
    pub(crate) stderr: Option<DuplexStream>,
    pub(crate) exec: String,
    pub(crate) killer: Killer,
    pub(crate) timeout: Option<Duration>,
    pub(crate) has_input: bool,
    pub(crate) abandoned: oneshot::Receiver<()>,
    pub(crate) tell: watch::Sender<Option<Result<ExecOutcome>>>,
}

enum End {
    Own,
    TimedOut,
    Abandoned,
}

impl Pump {
    pub(crate) async fn run(self) {
        let Self { output, stdout, stderr, exec, killer, timeout, has_input, mut abandoned, tell } = self;
        let mut first = Vec::new();
        let end = {
            let over = over(&killer, &exec, has_input);
            let copy = pass_on(Heard::new(output, over), stdout, stderr, &mut first);
            tokio::pin!(copy);
            let time = async {
                match timeout {
                    Some(timeout) => tokio::time::sleep(timeout).await,
                    None => std::future::pending().await,
                }
            };
            let end = tokio::select! {
                () = &mut copy => End::Own,
                () = time => End::TimedOut,
                _ = &mut abandoned => End::Abandoned,
            };
            if !matches!(end, End::Own) {
                if let Err(error) = killer.end(&exec).await {
                    tracing::warn!(tag = killer.place.tag, error = ?error, "a command could not be ended");
                }
                let _ = tokio::time::timeout(LAST_WORDS, copy).await;
            }
            end
        };
        let outcome = match end {
            End::TimedOut => Ok(ExecOutcome {
                exit_code: EXIT_TIMED_OUT,
                signal: None,
                timed_out: true,
                out_of_memory: false,
            }),
            End::Own | End::Abandoned => outcome(&killer, &exec, &first).await,
        };
        tell.send_replace(Some(outcome));
    }
}

/// When a command is over whose output may not end: an engine that is stuck with input which nobody reads any more does
/// not end it. Without input the end of the output is all that there is to wait for.
async fn over(killer: &Killer, exec: &str, has_input: bool) {
    if !has_input {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let state = killer.place.connected.api.inspect_exec(exec).await;
        if state.is_ok_and(|state| state.running == Some(false) && state.exit_code.is_some()) {
            return;
        }
    }
}

/// Passes input on until its end, or until the command is over: whoever writes to nobody is told.
pub(crate) async fn pass_in(
    mut from: DuplexStream,
    mut input: OwnedWriteHalf,
    mut outcome: watch::Receiver<Option<Result<ExecOutcome>>>,
) {
    let copy = async {
        let _ = tokio::io::copy(&mut from, &mut input).await;
        let _ = input.shutdown().await;
    };
    tokio::select! {
        () = copy => {}
        _ = outcome.wait_for(Option::is_some) => {}
    }
}

/// The output, until the engine ends it, or says nothing more for a while although the command is over. What waits for a
/// slow reader is not cut off by that: only the engine's silence counts.
struct Heard<F> {
    output: Output,
    over: std::pin::Pin<Box<F>>,
    is_over: bool,
}

impl<F: Future<Output = ()>> Heard<F> {
    fn new(output: Output, over: F) -> Self {
        Self { output, over: Box::pin(over), is_over: false }
    }

    /// With a terminal, whatever comes; nothing at the end.
    async fn some(&mut self, buffer: &mut Vec<u8>) -> Option<usize> {
        let Self { output, over, is_over } = self;
        unless_silent(output.read_buf(buffer), over, is_over).await?.ok().filter(|count| *count > 0)
    }

    async fn frame(&mut self, buffer: &mut Vec<u8>) -> Option<Source> {
        let Self { output, over, is_over } = self;
        unless_silent(output.frame(buffer), over, is_over).await?.ok()?
    }
}

/// What comes next. A read that has begun is not given up for the news that the command is over, only for the silence
/// after it.
async fn unless_silent<T>(
    next: impl Future<Output = T>,
    over: &mut std::pin::Pin<Box<impl Future<Output = ()>>>,
    is_over: &mut bool,
) -> Option<T> {
    tokio::pin!(next);
    if !*is_over {
        tokio::select! {
            biased;
            read = &mut next => return Some(read),
            () = over => *is_over = true,
        }
    }
    tokio::time::timeout(LAST_WORDS, next).await.ok()
}

/// Copies until the end of the output. A reader that is gone does not stop the command.
async fn pass_on<F: Future<Output = ()>>(
    mut output: Heard<F>,
    mut stdout: DuplexStream,
    stderr: Option<DuplexStream>,
    first: &mut Vec<u8>,
) {
    let mut buffer = Vec::with_capacity(32 * 1024);
    let Some(mut stderr) = stderr else {
        loop {
            buffer.clear();
            match output.some(&mut buffer).await {
                Some(_) => drop(stdout.write_all(&buffer).await),
                None => return,
            }
        }
    };
    while let Some(source) = output.frame(&mut buffer).await {
        let target = match source {
            Source::Stdout => &mut stdout,
            Source::Stderr => &mut stderr,
        };
        if first.len() < FIRST_WORDS {
            first.extend_from_slice(&buffer[..buffer.len().min(FIRST_WORDS)]);
        }
        let _ = target.write_all(&buffer).await;
    }
}

/// Asks the engine for the exit code, which it knows a moment after the end of the streams.
async fn outcome(killer: &Killer, exec: &str, first: &[u8]) -> Result<ExecOutcome> {
    let start = tokio::time::Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        let state = match killer.place.connected.api.inspect_exec(exec).await {
            Ok(state) => state,
            Err(error) => {
                let error = map(error, "tell how a command ended");
                return Err(match error.kind() {
                    ErrorKind::ExecNotFound | ErrorKind::SandboxNotFound | ErrorKind::NotFound => {
                        gone(&killer.place.tag)
                    }
                    _ => error,
                });
            }
        };
        if state.running != Some(true)
            && let Some(code) = state.exit_code
        {
            if NOT_STARTED.contains(&code) && state.pid.unwrap_or_default() == 0 {
                return Err(refused(first));
            }
            let exit_code = i32::try_from(code).unwrap_or(-1);
            return Ok(ExecOutcome { exit_code, signal: None, timed_out: false, out_of_memory: false });
        }
        if start.elapsed() > NOTICE {
            return Err(Error::new(
                ErrorKind::BackendFailed,
                "the docker engine does not tell how a command ended",
            ));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// The engine could not start the command, and said why where its output would be.
fn refused(first: &[u8]) -> Error {
    let words = String::from_utf8_lossy(first);
    let words = words.trim();
    let kind = match () {
        () if words.contains("unable to find user") || words.contains("unable to find group") => {
            ErrorKind::InvalidInput
        }
        () if words.contains("chdir to cwd") => ErrorKind::InvalidInput,
        () if words.contains("resource temporarily unavailable") => ErrorKind::RateLimited,
        () => ErrorKind::BackendFailed,
    };
    let error = Error::new(kind, format!("the command could not be started: {words}"));
    match kind {
        ErrorKind::RateLimited => {
            error.with_hint("the sandbox has as many processes as its `pids` limit allows")
        }
        _ => error,
    }
}
