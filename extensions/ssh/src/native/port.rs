//! Ports inside: the host's `sandboxer port` listens on the host's loopback for as long as one connection is there.

use std::pin::Pin;
use std::task::{Context, Poll};

use sandboxer_core::exec::ExecSession;
use sandboxer_core::extension::BoxDuplex;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::{Command, failure};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, BufReader, ReadBuf};

use super::Native;
use crate::sandbox::Sandbox;

/// Whether something inside listens on the port `$1` of any address.
const LISTENS: &str = r#"
x=$(printf ':%04X' "$1")
while read -r _ at _ state _; do case $at in *"$x") [ "$state" = 0A ] && exit 0;; esac; done <<END
$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null)
END
exit 44
"#;

/// An answer of a few lines.
const LIMIT: u64 = 4_096;

pub(crate) async fn connect(sandbox: &Sandbox, native: &Native, port: u16) -> Result<BoxDuplex> {
    let text = port.to_string();
    let look = sandbox.shell().output(Command::script(LISTENS, [&text]), 4_096).await?;
    match look.outcome.exit_code {
        0 => {}
        44 => return Err(unanswered(port)),
        _ => return Err(failure::of("looking for the port", &look)),
    }
    let argv = native.argv(["port", "--json", "--listen", "127.0.0.1:0", &native.id, &text]);
    let mut session = sandbox.remote.start(Command::new(argv).cwd(&sandbox.data.dir)).await?;
    let on_host = address(&mut session).await.ok_or_else(|| unanswered(port))?;
    let stream = sandbox.remote.forward(on_host).await?;
    Ok(Box::pin(Held { stream, _session: session }))
}

fn unanswered(port: u16) -> Error {
    Error::new(ErrorKind::Unreachable, format!("nothing answers on port {port}"))
}

/// The port on the host, from the document that the command starts with.
async fn address(session: &mut ExecSession) -> Option<u16> {
    let mut lines = BufReader::new((&mut session.stdout).take(LIMIT));
    let mut text = String::new();
    while lines.read_line(&mut text).await.ok()? > 0 {
        if let Ok(document) = serde_json::from_str::<Value>(&text) {
            return document.get("address")?.as_str()?.rsplit_once(':')?.1.parse().ok();
        }
    }
    None
}

/// A connection, and what keeps it up on the host.
struct Held {
    stream: BoxDuplex,
    _session: ExecSession,
}

impl AsyncRead for Held {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        self.stream.as_mut().poll_read(cx, buffer)
    }
}

impl AsyncWrite for Held {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.stream.as_mut().poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.stream.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.stream.as_mut().poll_shutdown(cx)
    }
}
