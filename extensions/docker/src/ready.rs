//! What the container's own process tells before it is ready.

use std::time::Duration;

use bollard::query_parameters::LogsOptionsBuilder;
use futures::StreamExt as _;
use sandboxer_core::{Error, ErrorKind, Result};

use crate::client::Connected;
use crate::errors::map;
use crate::hijack::{Output, Source};

/// The last line of the report.
const READY: &str = "ready";
/// How long the process may take to speak.
const READY_LIMIT: Duration = Duration::from_secs(30);
const REPORT_LIMIT: usize = 32 * 1024;

pub(crate) fn is_ready(told: &str) -> bool {
    told.lines().any(|line| line == READY) && told.ends_with('\n')
}

/// Listens until the container's process is ready.
pub(crate) async fn hear(output: Output) -> Result<String> {
    match tokio::time::timeout(READY_LIMIT, listen(output)).await {
        Ok(told) => told,
        Err(_) => {
            Err(Error::new(ErrorKind::Timeout, format!("the container did not speak within {READY_LIMIT:?}")))
        }
    }
}

async fn listen(mut output: Output) -> Result<String> {
    let (mut told, mut complaint, mut buffer) = (String::new(), String::new(), Vec::new());
    loop {
        match output.frame(&mut buffer).await.map_err(crate::errors::unreachable)? {
            Some(Source::Stdout) => told.push_str(&String::from_utf8_lossy(&buffer)),
            Some(Source::Stderr) => complaint.push_str(&String::from_utf8_lossy(&buffer)),
            None => return Err(silent(&complaint)),
        }
        if is_ready(&told) {
            return Ok(told);
        }
        if told.len() + complaint.len() > REPORT_LIMIT {
            return Err(silent(&complaint));
        }
    }
}

fn silent(complaint: &str) -> Error {
    let words = complaint.trim();
    Error::new(ErrorKind::Unsupported, format!("the container ended before it was ready: {words}")).with_hint(
        "an image needs /bin/sh, `sleep` and `date`: busybox or any distribution has them, a distroless image has not",
    )
}

/// What the process of an older container told when it started.
pub(crate) async fn logged(connected: &Connected, name: &str) -> Result<String> {
    let options = LogsOptionsBuilder::default().stdout(true).build();
    let mut stream = std::pin::pin!(connected.api.logs(name, Some(options)));
    let mut told = String::new();
    while let Some(piece) = stream.next().await {
        match piece {
            Ok(piece) => told.push_str(&String::from_utf8_lossy(&piece.into_bytes())),
            // It may end at any moment.
            Err(bollard::errors::Error::DockerResponseServerError { status_code: 404 | 409, .. }) => break,
            Err(error) => return Err(map(error, "read a container's words")),
        }
        if told.len() > REPORT_LIMIT {
            break;
        }
    }
    Ok(told)
}
