//! Our own small scripts inside a container: what they said, and what their failures mean.

use std::time::Duration;

use sandboxer_core::exec::{BoxRead, ExecSession};
use sandboxer_core::{Error, ErrorKind, Result};
use tokio::io::AsyncReadExt as _;

use crate::errors::is_full;
use crate::exec::Place;

/// The most that a script's answer may take.
const ANSWER_LIMIT: u64 = 16 << 20;
const STDERR_LIMIT: u64 = 8 << 10;
/// How long a script may take that moves no data.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Codes that the scripts agree on with us.
pub(crate) const MISSING: i32 = 44;
pub(crate) const WRONG_KIND: i32 = 45;
pub(crate) const BROKEN_OFF: i32 = 46;

/// What a script said.
pub(crate) struct Captured {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    pub(crate) code: i32,
}

impl Captured {
    /// The typed reason of a failure. `doing` completes "cannot …".
    pub(crate) fn failed(&self, doing: &str) -> Error {
        failure(self.code, &self.stderr, doing)
    }

    pub(crate) fn ok(self, doing: &str) -> Result<Vec<u8>> {
        if self.code == 0 { Ok(self.stdout) } else { Err(self.failed(doing)) }
    }
}

pub(crate) fn failure(code: i32, stderr: &str, doing: &str) -> Error {
    let words = stderr.trim().lines().last().unwrap_or_default();
    let kind = match code {
        MISSING => ErrorKind::NotFound,
        WRONG_KIND => ErrorKind::InvalidInput,
        BROKEN_OFF => ErrorKind::Cancelled,
        127 => ErrorKind::Unsupported,
        _ if is_full(stderr) => ErrorKind::NoSpace,
        _ if stderr.contains("ermission denied") || stderr.contains("Read-only file system") => {
            ErrorKind::Denied
        }
        _ if stderr.contains("Operation not permitted") => ErrorKind::Denied,
        _ if stderr.contains("No such file or directory") => ErrorKind::NotFound,
        _ if stderr.contains("irectory not empty") => ErrorKind::Conflict,
        _ => ErrorKind::BackendFailed,
    };
    let words = if words.is_empty() { format!("code {code}") } else { words.to_owned() };
    let error = Error::new(kind, format!("cannot {doing}: {words}"));
    match kind {
        ErrorKind::Unsupported => {
            error.with_hint("the image lacks a program that this needs; busybox has them all")
        }
        _ => error,
    }
}

/// Runs a script to its end.
pub(crate) async fn run(place: &Place, user: &str, script: &str, args: &[&str]) -> Result<Captured> {
    run_within(place, user, script, args, TIME_LIMIT).await
}

pub(crate) async fn run_within(
    place: &Place,
    user: &str,
    script: &str,
    args: &[&str],
    limit: Duration,
) -> Result<Captured> {
    let mut launch = place.script(user, script, args);
    launch.timeout = None;
    let session = place.start(launch).await?;
    match tokio::time::timeout(limit, capture(session)).await {
        Ok(captured) => captured,
        Err(_) => Err(Error::new(ErrorKind::Timeout, format!("the sandbox did not answer within {limit:?}"))),
    }
}

/// Reads everything that a session says.
pub(crate) async fn capture(session: ExecSession) -> Result<Captured> {
    let ExecSession { stdin, stdout, stderr, control } = session;
    drop(stdin);
    let (stdout, stderr, outcome) =
        tokio::join!(read_all(stdout, ANSWER_LIMIT), read_opt(stderr, STDERR_LIMIT), control.wait());
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    Ok(Captured { stdout, stderr, code: outcome?.exit_code })
}

pub(crate) async fn read_opt(stream: Option<BoxRead>, limit: u64) -> Vec<u8> {
    match stream {
        Some(stream) => read_all(stream, limit).await,
        None => Vec::new(),
    }
}

/// Keeps what fits and reads on, so that the writer never waits for somebody who has enough.
pub(crate) async fn read_all(mut stream: BoxRead, limit: u64) -> Vec<u8> {
    let mut kept = Vec::new();
    let _ = (&mut stream).take(limit).read_to_end(&mut kept).await;
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    kept
}

pub(crate) async fn stderr_of(stream: Option<BoxRead>) -> String {
    String::from_utf8_lossy(&read_opt(stream, STDERR_LIMIT).await).into_owned()
}
