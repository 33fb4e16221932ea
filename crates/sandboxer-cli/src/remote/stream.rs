//! Answers that go on: logs as lines of JSON, events as server-sent events.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sandboxer_core::event::Event;
use sandboxer_core::exec::{BoxRead, ExecOutcome, LogStream};
use sandboxer_core::extension::Progress;
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::{Error, ErrorKind, EventId, Result, SandboxId};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::mpsc;

use super::client::{Call, Client};
use super::fault;
use crate::api::{Feed, LogPiece};

const QUEUE: usize = 16;
/// After a connection broke, before the next one. The server keeps what happens meanwhile.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    Stdout(Data),
    Stderr(Data),
    Exit(ExecOutcome),
    Error { error: fault::ErrorBody },
}

#[derive(Deserialize)]
struct Data {
    #[serde(default)]
    data: String,
    #[serde(default)]
    skipped: u64,
}

/// What a server says about a create while it goes on.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Creating {
    Progress { line: String },
    Sandbox { sandbox: Box<Sandbox> },
    Error { error: fault::ErrorBody },
}

/// The end of a create whose progress is told. A server that tells none answers with the sandbox alone.
pub(super) async fn created(body: BoxRead, progress: &Progress) -> Result<Sandbox> {
    let not_understood = |source| {
        Error::new(ErrorKind::BackendFailed, "what the server sent cannot be understood").with_source(source)
    };
    let mut lines = BufReader::new(body).lines();
    while let Some(line) = lines.next_line().await.map_err(broke_off)? {
        if line.trim().is_empty() {
            continue;
        }
        match serde_json::from_str(&line) {
            Ok(Creating::Progress { line }) => progress.say(line),
            Ok(Creating::Sandbox { sandbox }) => return Ok(*sandbox),
            Ok(Creating::Error { error }) => return Err(error.into()),
            Err(_) => return serde_json::from_str(&line).map_err(not_understood),
        }
    }
    Err(broke_off(std::io::ErrorKind::UnexpectedEof.into()))
}

/// Output of a background exec.
pub(super) fn logs(body: BoxRead) -> Feed<LogPiece> {
    let (sender, feed) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        let mut lines = BufReader::new(body).lines();
        loop {
            let piece = match lines.next_line().await {
                Ok(None) => return,
                Ok(Some(line)) if line.trim().is_empty() => continue,
                Ok(Some(line)) => log_piece(&line),
                Err(source) => Err(broke_off(source)),
            };
            let last = piece.is_err();
            if sender.send(piece).await.is_err() || last {
                return;
            }
        }
    });
    feed
}

fn log_piece(line: &str) -> Result<LogPiece> {
    let (stream, Data { data, skipped }) = match serde_json::from_str(line).map_err(not_understood)? {
        Line::Stdout(data) => (LogStream::Stdout, data),
        Line::Stderr(data) => (LogStream::Stderr, data),
        Line::Exit(outcome) => return Ok(LogPiece::Exit(outcome)),
        Line::Error { error } => return Err(error.into()),
    };
    let data = BASE64.decode(data).map_err(not_understood)?;
    Ok(LogPiece::Output { stream, data, skipped })
}

pub(super) fn events_call(client: &Client, subject: Option<SandboxId>) -> Call {
    match subject {
        Some(id) => client.get(&["v1", "sandboxes", &id.to_string(), "events"]),
        None => client.get(&["v1", "events"]),
    }
}

/// Events as they come. A connection that breaks is made again, from the last event on.
pub(super) async fn events(
    client: Client,
    subject: Option<SandboxId>,
    after: Option<EventId>,
) -> Result<Feed<Event>> {
    let first = connect(&client, subject, after).await?;
    let (sender, feed) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        let (mut body, mut last) = (Some(first), after);
        while !sender.is_closed() {
            let connected = match body.take() {
                Some(body) => Ok(body),
                None => {
                    tokio::time::sleep(PAUSE).await;
                    connect(&client, subject, last).await
                }
            };
            match connected {
                Ok(body) => forward(body, &mut last, &sender).await,
                // What is refused stays refused; a server that is away for a moment comes back.
                Err(error) if error.retry() == sandboxer_core::Retry::Temporary => {}
                Err(error) => {
                    let _ = sender.send(Err(error)).await;
                    return;
                }
            }
        }
    });
    Ok(feed)
}

async fn connect(client: &Client, subject: Option<SandboxId>, after: Option<EventId>) -> Result<BoxRead> {
    let mut call = events_call(client, subject).header("accept", "text/event-stream")?;
    if let Some(after) = after {
        call = call.header("last-event-id", &after.to_string())?;
    }
    call.body().await
}

/// Sends on what one connection brings, until it ends. Comments and other fields are not for us.
async fn forward(body: BoxRead, last: &mut Option<EventId>, sender: &mpsc::Sender<Result<Event>>) {
    let mut lines = BufReader::new(body).lines();
    let mut data = String::new();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(more) = line.strip_prefix("data:") {
            if !data.is_empty() {
                data.push('\n');
            }
            data.push_str(more.strip_prefix(' ').unwrap_or(more));
            continue;
        }
        if !line.is_empty() || data.is_empty() {
            continue;
        }
        let event = serde_json::from_str::<Event>(&data).map_err(not_understood);
        data.clear();
        if let Ok(event) = &event {
            *last = Some(event.id);
        }
        if sender.send(event).await.is_err() {
            return;
        }
    }
}

fn not_understood(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::BackendFailed, "what the server sent cannot be understood").with_source(source)
}

fn broke_off(source: std::io::Error) -> Error {
    Error::new(ErrorKind::BackendFailed, "the connection to the server broke off").with_source(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_pieces() {
        let LogPiece::Output { stream, data, skipped } =
            log_piece(r#"{"type":"stderr","data":"//8=","skipped":7}"#).unwrap()
        else {
            panic!()
        };
        assert_eq!((stream, data, skipped), (LogStream::Stderr, vec![0xff, 0xff], 7));
        assert!(
            matches!(log_piece(r#"{"type":"exit","exit_code":3}"#).unwrap(), LogPiece::Exit(o) if o.exit_code == 3)
        );
        let error = log_piece(r#"{"type":"error","error":{"code":"timeout","message":"m"}}"#).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(log_piece("nonsense").is_err());
    }
}
