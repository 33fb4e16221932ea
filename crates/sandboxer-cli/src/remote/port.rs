//! A connection to a port inside a sandbox, over a WebSocket of the server.

use futures::{SinkExt as _, StreamExt as _};
use sandboxer_core::extension::BoxDuplex;
use sandboxer_core::{Result, SandboxId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio_tungstenite::tungstenite::Message;

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
    tokio::spawn(relay(socket, far));
    Ok(Box::pin(near))
}

/// Until both halves have ended, or either side is gone.
async fn relay(socket: Socket, inner: DuplexStream) {
    let (mut sink, mut source) = socket.split();
    let (mut read, mut write) = tokio::io::split(inner);
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
                Message::Binary(data) => {
                    if write.write_all(&data).await.is_err() {
                        return;
                    }
                }
                Message::Text(text) if text.as_str() == EOF => break,
                Message::Close(_) => break,
                _ => {}
            }
        }
        let _ = write.shutdown().await;
    };
    tokio::join!(outbound, inbound);
    let _ = sink.send(Message::Close(None)).await;
}
