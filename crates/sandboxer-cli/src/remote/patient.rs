//! A TCP connection that is read to its end even when the other side does not listen any more.
//!
//! A server that has said its last word closes. What we write after that, a pong say, is refused, and must not keep
//! us from reading the last word, which has arrived already.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use reqwest::Url;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

pub(super) struct Patient {
    stream: TcpStream,
    /// Writing failed: from now on it is pretended.
    deaf: bool,
}

impl Patient {
    pub(super) async fn connect(url: &Url) -> io::Result<Self> {
        let addresses = url.socket_addrs(|| if url.scheme() == "wss" { Some(443) } else { Some(80) })?;
        let stream = TcpStream::connect(&*addresses).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, deaf: false })
    }

    fn tolerate<T>(&mut self, polled: Poll<io::Result<T>>, pretended: T) -> Poll<io::Result<T>> {
        match polled {
            Poll::Ready(Err(error))
                if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) =>
            {
                self.deaf = true;
                Poll::Ready(Ok(pretended))
            }
            other => other,
        }
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.deaf {
            return Poll::Ready(Ok(data.len()));
        }
        let polled = Pin::new(&mut self.stream).poll_write(context, data);
        self.tolerate(polled, data.len())
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.tolerate(polled, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.tolerate(polled, ())
    }
}
