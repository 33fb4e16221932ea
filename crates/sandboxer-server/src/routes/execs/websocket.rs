//! `GET …/execs/ws`: a terminal, or any command whose input comes bit by bit.
//!
//! The first frame is the exec request as text. Then binary frames are input and text frames are words about it; back
//! come binary frames with the stream in their first byte, and at last a text frame with the end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use http::StatusCode;
use sandboxer_core::exec::{BoxWrite, ExecControl, TtySize};
use sandboxer_core::request::ExecRequest;
use sandboxer_core::{Error, ErrorKind, ExecId, Result, SandboxId};
use sandboxer_engine::Caller;
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::record::{ExecRecord, ExitRecord};
use super::run::millis_since;
use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiError, ApiResult, to_json};
use crate::openapi::Errors;
use crate::path::SandboxPath;
use crate::pump::{Piece, Pump};
use crate::request_id::RequestContext;

const PING_EVERY: Duration = Duration::from_secs(20);
/// Without a word, not even a pong, the caller is gone.
const SILENT_FOR: Duration = Duration::from_secs(60);
const FIRST_FRAME_WITHIN: Duration = Duration::from_secs(30);
/// How long the caller may take to read the last words and close.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);
const CLOSED_WITHIN_STOP: Duration = Duration::from_millis(500);
/// Input that a command has not read yet; beyond it no more frames are taken.
const QUEUED_INPUT: usize = 1 << 20;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;

/// Run a command over a WebSocket
///
/// First text frame: an exec request. Then to the server: binary is input, text is `{"type":"eof"}`,
/// `{"type":"resize","rows":24,"cols":80}` or `{"type":"signal","signal":2}` (`"whole_tree":true` for everything that the
/// command started). From the server: text `{"type":"started","exec_id":…}`; binary with first byte 1 for stdout and 2 for stderr; at last text
/// `{"type":"exit",…}` or `{"type":"error",…}`. Closing ends the command.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/execs/ws", tag = "execs",
    params(("id" = String, Path, description = "Sandbox id")),
    responses((status = 101, description = "Switched to the WebSocket protocol"), Errors)
)]
pub(crate) async fn exec_websocket(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    Extension(context): Extension<RequestContext>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult {
    let upgrade = upgrade.map_err(|why| {
        ApiError::edge(StatusCode::UPGRADE_REQUIRED, "upgrade_required", why.body_text())
            .hint("this path speaks WebSocket; `POST …/execs` runs a command over plain HTTP")
    })?;
    let limit = app.limits().json_body;
    let tracked = app.tasks().token();
    Ok(upgrade.max_message_size(limit).max_frame_size(limit).on_upgrade(move |socket| async move {
        let _tracked = tracked;
        let stopped = app.stopped().clone();
        tokio::select! {
            () = stopped.cancelled() => {}
            () = converse(app, caller, id, socket, context) => {}
        }
    }))
}

type Sink = SplitSink<WebSocket, Message>;
type Source = SplitStream<WebSocket>;

async fn converse(app: App, caller: Caller, id: SandboxId, socket: WebSocket, context: RequestContext) {
    let (mut sink, mut source) = socket.split();
    let ended = match first_frame(&mut source).await {
        Ok(Some(request)) => run(&app, &caller, id, request, &mut sink, &mut source).await,
        Ok(None) => return,
        Err(error) => Err(error),
    };
    // Whoever is gone does not hear it, and need not.
    let code = match ended {
        Ok(()) => close_code::NORMAL,
        Err(error) => {
            let kind = error.kind();
            let error = ApiError::from(error).envelope(context.id()).error;
            if let Ok(text) = to_json(&ExecRecord::Error { error }) {
                let _ = sink.send(Message::Text(text.into())).await;
            }
            if kind == ErrorKind::Cancelled { close_code::AWAY } else { close_code::ERROR }
        }
    };
    let _ = sink.send(Message::Close(Some(CloseFrame { code, reason: "".into() }))).await;
    // Until the caller has closed too: a socket that is dropped with frames unread is reset, and a reset can overtake
    // the last words on their way.
    let heard = async { while let Some(Ok(_)) = source.next().await {} };
    let patience = if app.draining().is_cancelled() { CLOSED_WITHIN_STOP } else { CLOSED_WITHIN };
    let _ = tokio::time::timeout(patience, heard).await;
}

/// The exec request; `None` when the caller left before saying anything.
async fn first_frame(source: &mut Source) -> Result<Option<ExecRequest>> {
    let invalid = |message: &str| Error::new(ErrorKind::InvalidInput, message);
    let wait = async {
        loop {
            match source.next().await {
                Some(Ok(Message::Text(text))) => return crate::json::parse(text.as_bytes()).map(Some),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Binary(_))) => {
                    return Err(invalid("the first frame is an exec request, as text"));
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(None),
            }
        }
    };
    let request: Option<ExecRequest> = tokio::time::timeout(FIRST_FRAME_WITHIN, wait)
        .await
        .map_err(|_| invalid("no exec request came"))??;
    if request.as_ref().is_some_and(|request| request.background) {
        return Err(
            invalid("a WebSocket has no background").with_hint("`POST …/execs` starts a background exec")
        );
    }
    Ok(request)
}

async fn run(
    app: &App,
    caller: &Caller,
    id: SandboxId,
    request: ExecRequest,
    sink: &mut Sink,
    source: &mut Source,
) -> Result<()> {
    let (exec_id, started, is_tty) = (ExecId::generate(), std::time::Instant::now(), request.tty);
    let mut session = app.engine().exec(caller, id, request.to_spec(exec_id, true)?).await?;
    app.metrics().execs.inc();
    let input = Input {
        stdin: session.stdin.take(),
        queue: request.stdin.into_iter().map(Bytes::from).collect(),
        eof: false,
        control: session.control.clone(),
    };
    let text = json!({ "type": "started", "exec_id": exec_id }).to_string();
    sink.send(Message::Text(text.into())).await.map_err(gone)?;
    let pump = Pump::new(session, None);
    // A terminal has no end of its own, so it ends with the server; a command may finish within the time to drain.
    let draining = app.draining().clone();
    let outcome = tokio::select! {
        outcome = outbound(pump, sink) => outcome?,
        ended = inbound(source, input) => return ended,
        () = draining.cancelled(), if is_tty => {
            return Err(Error::new(ErrorKind::Cancelled, "the server is stopping"));
        }
    };
    let duration_ms = Some(millis_since(started));
    let text = to_json(&ExecRecord::Exit(ExitRecord { exec_id, outcome, duration_ms }))?;
    sink.send(Message::Text(text.into())).await.map_err(gone)
}

fn gone(source: axum::Error) -> Error {
    Error::new(ErrorKind::Cancelled, "the caller went away").with_source(source)
}

/// Output as it comes, and a ping when there is none.
async fn outbound(mut pump: Pump, sink: &mut Sink) -> Result<sandboxer_core::exec::ExecOutcome> {
    let mut ping = tokio::time::interval_at(tokio::time::Instant::now() + PING_EVERY, PING_EVERY);
    loop {
        let message = tokio::select! {
            piece = pump.next() => match piece? {
                Piece::Stdout(data) => framed(STDOUT, &data),
                Piece::Stderr(data) => framed(STDERR, &data),
                Piece::Exit(outcome) => return Ok(outcome),
            },
            _ = ping.tick() => Message::Ping(Bytes::new()),
        };
        sink.send(message).await.map_err(gone)?;
    }
}

fn framed(stream: u8, data: &[u8]) -> Message {
    let mut frame = BytesMut::with_capacity(data.len() + 1);
    frame.put_u8(stream);
    frame.extend_from_slice(data);
    Message::Binary(frame.freeze())
}

/// What a text frame after the first may say.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Word {
    Eof,
    Resize {
        rows: u16,
        cols: u16,
    },
    Signal {
        signal: i32,
        /// Also for everything that the command started.
        #[serde(default)]
        whole_tree: bool,
    },
}

struct Input {
    stdin: Option<BoxWrite>,
    queue: VecDeque<Bytes>,
    eof: bool,
    control: Arc<dyn ExecControl>,
}

/// Takes frames and feeds the command, until the caller leaves. A command that does not read delays only its input.
async fn inbound(source: &mut Source, mut input: Input) -> Result<()> {
    loop {
        let may_take = input.queue.iter().map(Bytes::len).sum::<usize>() < QUEUED_INPUT;
        tokio::select! {
            frame = tokio::time::timeout(SILENT_FOR, source.next()), if may_take => match frame {
                Ok(Some(Ok(message))) => if input.take(message).await?.is_break() {
                    return Ok(());
                },
                Ok(Some(Err(_)) | None) | Err(_) => return Ok(()),
            },
            () = input.feed() => {}
        }
    }
}

impl Input {
    async fn take(&mut self, message: Message) -> Result<std::ops::ControlFlow<()>> {
        match message {
            Message::Binary(data) if !self.eof && !data.is_empty() => self.queue.push_back(data),
            Message::Text(text) => match crate::json::parse::<Word>(text.as_bytes())? {
                Word::Eof => self.eof = true,
                Word::Resize { rows, cols } => self.control.resize(TtySize { rows, cols }).await?,
                Word::Signal { signal, whole_tree } if (1..=64).contains(&signal) => {
                    self.control.signal(signal, whole_tree).await?
                }
                Word::Signal { signal, .. } => {
                    return Err(Error::new(ErrorKind::InvalidInput, format!("{signal} is not a signal")));
                }
            },
            Message::Close(_) => return Ok(std::ops::ControlFlow::Break(())),
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => {}
        }
        Ok(std::ops::ControlFlow::Continue(()))
    }

    /// One step of feeding; never ready when there is nothing to do. Nothing is lost or doubled when it is dropped.
    async fn feed(&mut self) {
        let Some(stdin) = &mut self.stdin else {
            self.queue.clear();
            return std::future::pending().await;
        };
        match self.queue.front_mut() {
            Some(data) => match stdin.write(data).await {
                Ok(count @ 1..) => {
                    drop(data.split_to(count));
                    if data.is_empty() {
                        self.queue.pop_front();
                    }
                }
                // It does not want more.
                Ok(_) | Err(_) => self.stdin = None,
            },
            None if self.eof => {
                let _ = stdin.shutdown().await;
                self.stdin = None;
            }
            None => std::future::pending().await,
        }
    }
}
