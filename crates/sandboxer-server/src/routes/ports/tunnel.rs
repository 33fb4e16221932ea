//! `GET …/ports/{port}` as a WebSocket: the bytes of one TCP connection into the sandbox.

use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::{IntoResponse, Redirect};
use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use sandboxer_core::extension::BoxDuplex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

use crate::app::App;
use crate::auth::Auth;
use crate::error::ApiResult;
use crate::openapi::Errors;
use crate::path::PortPath;

const PING_EVERY: Duration = Duration::from_secs(20);
/// Without a word, not even a pong, the caller is gone.
const SILENT_FOR: Duration = Duration::from_secs(60);
const CHUNK: usize = 64 << 10;
/// A half that has ended says so; WebSocket itself only knows the end of both.
const EOF: &str = r#"{"type":"eof"}"#;

/// Connect to a port inside a sandbox
///
/// As a WebSocket: one TCP connection, its bytes in binary frames both ways; the text frame `{"type":"eof"}` says that
/// no more will come from this side. Without an upgrade: a redirect to the same with a `/` at its end.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/ports/{port}", tag = "ports",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("port" = u16, Path, description = "The port inside, on its loopback")
    ),
    responses(
        (status = 101, description = "Switched to the WebSocket protocol"),
        (status = 308, description = "To the HTTP of the port"),
        Errors
    )
)]
pub(crate) async fn port_tunnel(
    State(app): State<App>,
    Auth(caller): Auth,
    PortPath(id, port): PortPath,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult {
    let Ok(upgrade) = upgrade else {
        return Ok(Redirect::permanent(&format!("/v1/sandboxes/{id}/ports/{port}/")).into_response());
    };
    // Before the switch, so that a refusal is a plain answer.
    let inner = app.engine().port_connect(&caller, id, port).await?;
    let tracked = app.tasks().token();
    let limit = app.limits().json_body;
    Ok(upgrade.max_message_size(limit).max_frame_size(limit).on_upgrade(move |socket| async move {
        let _tracked = tracked;
        let (stopped, draining) = (app.stopped().clone(), app.draining().clone());
        tokio::select! {
            () = stopped.cancelled() => {}
            () = draining.cancelled() => {}
            () = relay(socket, inner) => {}
        }
    }))
}

async fn relay(socket: WebSocket, inner: BoxDuplex) {
    let (sink, source) = socket.split();
    let (read, write) = tokio::io::split(inner);
    // The caller closes when both halves have ended.
    tokio::select! {
        () = outbound(read, sink) => {}
        () = inbound(source, write) => {}
    }
}

/// From the sandbox to the caller.
async fn outbound(mut read: ReadHalf<BoxDuplex>, mut sink: SplitSink<WebSocket, Message>) {
    let mut ping = tokio::time::interval_at(tokio::time::Instant::now() + PING_EVERY, PING_EVERY);
    let mut chunk = vec![0_u8; CHUNK];
    let mut open = true;
    loop {
        let message = tokio::select! {
            count = read.read(&mut chunk), if open => match count {
                Ok(count @ 1..) => Message::Binary(Bytes::copy_from_slice(&chunk[..count])),
                Ok(_) | Err(_) => {
                    open = false;
                    Message::Text(EOF.into())
                }
            },
            _ = ping.tick() => Message::Ping(Bytes::new()),
        };
        if sink.send(message).await.is_err() {
            return;
        }
    }
}

/// From the caller to the sandbox, until the caller leaves.
async fn inbound(mut source: SplitStream<WebSocket>, write: WriteHalf<BoxDuplex>) {
    let mut write = Some(write);
    loop {
        match tokio::time::timeout(SILENT_FOR, source.next()).await {
            Ok(Some(Ok(Message::Binary(data)))) => {
                // Whoever does not want more may still have something to say.
                if let Some(half) = &mut write
                    && half.write_all(&data).await.is_err()
                {
                    write = None;
                }
            }
            Ok(Some(Ok(Message::Text(text)))) if text.as_str() == EOF => {
                if let Some(mut half) = write.take() {
                    let _ = half.shutdown().await;
                }
            }
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
            Ok(Some(Ok(_) | Err(_)) | None) | Err(_) => return,
        }
    }
}
