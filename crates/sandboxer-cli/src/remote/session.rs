//! A command over a WebSocket: its streams, its control, its end.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use reqwest::header::AUTHORIZATION;
use sandboxer_core::exec::{ExecControl, ExecOutcome, ExecSession, TtySize};
use sandboxer_core::request::ExecRequest;
use sandboxer_core::{Error, ErrorKind, ExecId, Result, SandboxId};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, client_async_tls_with_config};

use super::client::Client;
use super::fault;
use super::patient::Patient;

/// Bytes of each stream on their way at most.
const WINDOW: usize = 256 << 10;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;

pub(super) type Socket = WebSocketStream<MaybeTlsStream<Patient>>;

/// What the server says in words; output comes as bytes.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Said {
    Started { exec_id: ExecId },
    Exit(ExecOutcome),
    Error { error: fault::ErrorBody },
}

/// Starts a command and connects its streams.
pub(super) async fn open(
    client: &Client,
    id: SandboxId,
    request: &ExecRequest,
    stdin: bool,
) -> Result<(ExecId, ExecSession)> {
    let path = ["v1", "sandboxes", &id.to_string(), "execs", "ws"];
    let mut socket = connect(client, &path).await?;
    let first = serde_json::to_string(request).map_err(|source| {
        Error::new(ErrorKind::Internal, "a request cannot be written").with_source(source)
    })?;
    socket.feed(Message::text(first)).await.map_err(broke_off)?;
    if !stdin {
        // With the request, so that even the shortest command finds its input at an end.
        socket.feed(eof()).await.map_err(broke_off)?;
    }
    socket.flush().await.map_err(broke_off)?;
    let exec_id = loop {
        match next(&mut socket).await? {
            Message::Text(text) => match said(&text)? {
                Said::Started { exec_id } => break exec_id,
                Said::Error { error } => return Err(error.into()),
                Said::Exit(_) => return Err(unexpected()),
            },
            Message::Close(_) | Message::Binary(_) => return Err(unexpected()),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    };
    Ok((exec_id, connected(socket, request.tty, stdin)))
}

/// A WebSocket at a path of the API. A refusal is the server's own error.
pub(super) async fn connect(client: &Client, path: &[&str]) -> Result<Socket> {
    let mut url = client.url(path);
    let scheme = if url.scheme() == "https" { "wss" } else { "ws" };
    url.set_scheme(scheme).map_err(|()| Error::new(ErrorKind::Internal, "the URL has no WebSocket form"))?;
    let mut request = url.as_str().into_client_request().map_err(broke_off)?;
    if let Some(key) = client.key() {
        request.headers_mut().insert(AUTHORIZATION, key.clone());
    }
    let stream = Patient::connect(&url).await.map_err(|source| {
        Error::new(ErrorKind::BackendFailed, "the server cannot be reached")
            .with_source(source)
            .with_hint(fault::AWAY)
    })?;
    match client_async_tls_with_config(request, stream, None, None).await {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::Error::Http(response)) => {
            let body = response.body().clone().unwrap_or_default();
            Err(fault::of_body(response.status().as_u16(), &body))
        }
        Err(error) => Err(broke_off(error)),
    }
}

/// One task reads the socket, one writes it: a reader that is slow does not hold up a signal.
fn connected(socket: Socket, tty: bool, stdin: bool) -> ExecSession {
    let (sink, stream) = socket.split();
    let (stdout_write, stdout) = duplex(WINDOW);
    let (stderr_write, stderr) = duplex(WINDOW);
    let (stdin_write, stdin_read) = duplex(WINDOW);
    let (orders, ordered) = mpsc::channel(16);
    let (ended, end) = watch::channel(None);
    let reading = tokio::spawn(async move {
        let outcome = receive(stream, stdout_write, stderr_write).await;
        ended.send_replace(Some(outcome));
    });
    let writing = tokio::spawn(transmit(sink, stdin.then_some(stdin_read), ordered));
    let tasks = [reading.abort_handle(), writing.abort_handle()];
    let stdin_write = stdin.then(|| Box::pin(stdin_write) as sandboxer_core::exec::BoxWrite);
    ExecSession {
        stdin: stdin_write,
        stdout: Box::pin(stdout),
        stderr: (!tty).then(|| Box::pin(stderr) as sandboxer_core::exec::BoxRead),
        control: Arc::new(Control { orders, end, tasks }),
    }
}

/// Output to the streams, until the command has ended or the connection has.
async fn receive(
    mut stream: SplitStream<Socket>,
    mut stdout: DuplexStream,
    mut stderr: DuplexStream,
) -> Result<ExecOutcome> {
    loop {
        match next(&mut stream).await? {
            Message::Binary(bytes) => {
                let (to, data) = match bytes.split_first() {
                    Some((&STDOUT, data)) => (&mut stdout, data),
                    Some((&STDERR, data)) => (&mut stderr, data),
                    _ => return Err(unexpected()),
                };
                // A stream that nobody reads any more is not a reason to miss the end.
                let _ = to.write_all(data).await;
            }
            Message::Text(text) => match said(&text)? {
                Said::Exit(outcome) => return Ok(outcome),
                Said::Error { error } => return Err(error.into()),
                Said::Started { .. } => return Err(unexpected()),
            },
            Message::Close(_) => return Err(unexpected()),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
}

/// Input and orders to the server, until nobody can give any more.
async fn transmit(
    mut sink: SplitSink<Socket, Message>,
    mut stdin: Option<DuplexStream>,
    mut orders: mpsc::Receiver<serde_json::Value>,
) {
    let mut chunk = vec![0_u8; 32 << 10];
    loop {
        let input = async {
            match &mut stdin {
                Some(stdin) => stdin.read(&mut chunk).await,
                None => std::future::pending().await,
            }
        };
        let message = tokio::select! {
            order = orders.recv() => match order {
                Some(order) => Message::text(order.to_string()),
                None => return,
            },
            read = input => match read {
                Ok(count @ 1..) => Message::binary(chunk[..count].to_vec()),
                Ok(_) | Err(_) => {
                    stdin = None;
                    eof()
                }
            },
        };
        if sink.send(message).await.is_err() {
            return;
        }
    }
}

struct Control {
    orders: mpsc::Sender<serde_json::Value>,
    end: watch::Receiver<Option<Result<ExecOutcome>>>,
    tasks: [AbortHandle; 2],
}

impl Drop for Control {
    /// The socket goes with its tasks, and with it, on the other side, the command.
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Control {
    async fn order(&self, order: serde_json::Value) -> Result<()> {
        self.orders
            .send(order)
            .await
            .map_err(|_| Error::new(ErrorKind::IllegalState, "the command has ended"))
    }
}

#[async_trait]
impl ExecControl for Control {
    async fn wait(&self) -> Result<ExecOutcome> {
        let mut end = self.end.clone();
        match end.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(unexpected())),
            Err(_) => Err(unexpected()),
        }
    }

    async fn signal(&self, signal: i32, whole_tree: bool) -> Result<()> {
        self.order(json!({ "type": "signal", "signal": signal, "whole_tree": whole_tree })).await
    }

    async fn resize(&self, size: TtySize) -> Result<()> {
        self.order(json!({ "type": "resize", "rows": size.rows, "cols": size.cols })).await
    }
}

fn eof() -> Message {
    Message::text(json!({ "type": "eof" }).to_string())
}

async fn next(
    stream: &mut (impl futures::Stream<Item = Result<Message, tungstenite::Error>> + Unpin),
) -> Result<Message> {
    match stream.next().await {
        Some(Ok(message)) => Ok(message),
        Some(Err(error)) => Err(broke_off(error)),
        None => Err(unexpected()),
    }
}

fn said(text: &str) -> Result<Said> {
    serde_json::from_str(text).map_err(|source| {
        Error::new(ErrorKind::BackendFailed, "what the server sent cannot be understood").with_source(source)
    })
}

fn broke_off(source: tungstenite::Error) -> Error {
    Error::new(ErrorKind::BackendFailed, "the connection to the server broke off").with_source(source)
}

fn unexpected() -> Error {
    Error::new(ErrorKind::BackendFailed, "the server ended the connection before the command had ended")
}
