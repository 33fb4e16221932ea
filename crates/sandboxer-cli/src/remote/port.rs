//! A connection to a port inside a sandbox, over a WebSocket of the server.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use futures::{SinkExt as _, StreamExt as _};
use sandboxer_core::extension::BoxDuplex;
use sandboxer_core::{Result, SandboxId};
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex,
};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client::Client;
use super::session::{Socket, connect};

/// Bytes on their way at most, in each direction.
const WINDOW: usize = 256 << 10;
const CHUNK: usize = 32 << 10;
/// A half that has ended says so.
const EOF: &str = r#"{"type":"eof"}"#;

pub(super) async fn open(client: &Client, id: SandboxId, port: u16) -> Result<BoxDuplex> {
    let socket = connect(client, &["v1", "sandboxes", &id.to_string(), "ports", &port.to_string()]).await?;
    let (near, far) = duplex(WINDOW);
    let unused = CancellationToken::new();
    tokio::spawn(relay(socket, far, unused.clone()));
    Ok(Box::pin(Tunnel { near, _unused: unused.drop_guard() }))
}

/// Until both halves have ended, or nobody wants to hear the rest.
async fn relay(socket: Socket, far: DuplexStream, unused: CancellationToken) {
    let (mut sink, mut source) = socket.split();
    let (mut read, mut write) = tokio::io::split(far);
    let outbound = async {
        let mut chunk = vec![0_u8; CHUNK];
        while let Ok(count @ 1..) = read.read(&mut chunk).await {
            if sink.send(Message::binary(chunk[..count].to_vec())).await.is_err() {
                return;
            }
        }
        let _ = sink.send(Message::text(EOF)).await;
    };
    let inbound = async {
        while let Some(Ok(message)) = source.next().await {
            match message {
                Message::Binary(data) => match write.write_all(&data).await {
                    Ok(()) => {}
                    Err(_) => return,
                },
                Message::Text(text) if text.as_str() == EOF => break,
                Message::Close(_) => break,
                _ => {}
            }
        }
        let _ = write.shutdown().await;
    };
    {
        let (mut outbound, mut inbound) = (pin!(outbound), pin!(inbound));
        let inbound_ended = tokio::select! {
            () = &mut outbound => false,
            () = &mut inbound => true,
        };
        if inbound_ended {
            outbound.await;
        } else {
            tokio::select! {
                () = inbound => {}
                () = unused.cancelled() => {}
            }
        }
    }
    let _ = sink.send(Message::Close(None)).await;
}

/// The near end; when it is dropped, what still comes is of no use.
struct Tunnel {
    near: DuplexStream,
    _unused: DropGuard,
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.near).poll_read(context, buffer)
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.near).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.near).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.near).poll_shutdown(context)
    }
}
