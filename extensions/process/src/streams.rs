//! Streams of a request as ordinary readers and writers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use sandboxer_core::exec::{BoxRead, BoxWrite};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

use crate::call::{Feeder, Request};
use crate::connection::Shared;
use crate::wire::{CHUNK, Stream, WINDOW};

/// What comes out of a request. Reading makes room for more.
pub(crate) struct ChunkReader {
    shared: Arc<Shared>,
    id: u64,
    stream: Stream,
    chunks: mpsc::UnboundedReceiver<std::io::Result<Bytes>>,
    current: Bytes,
    /// Bytes that were read and not granted anew.
    read: usize,
    /// Cancels the request when nobody reads any more.
    request: Option<Request>,
}

impl ChunkReader {
    pub(crate) fn new(
        shared: Arc<Shared>,
        id: u64,
        stream: Stream,
        chunks: mpsc::UnboundedReceiver<std::io::Result<Bytes>>,
    ) -> Self {
        Self { shared, id, stream, chunks, current: Bytes::new(), read: 0, request: None }
    }

    /// The reader that the request lives by.
    pub(crate) fn holding(mut self, request: Request) -> BoxRead {
        self.request = Some(request);
        Box::pin(self)
    }
}

impl AsyncRead for ChunkReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        while self.current.is_empty() {
            match ready!(self.chunks.poll_recv(context)) {
                None => return Poll::Ready(Ok(())),
                Some(Ok(chunk)) => self.current = chunk,
                Some(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        let count = buffer.remaining().min(self.current.len());
        buffer.put_slice(&self.current[..count]);
        self.current.advance(count);
        self.read += count;
        if self.read >= WINDOW / 4 {
            self.shared.grant(self.id, self.stream, self.read);
            self.read = 0;
        }
        Poll::Ready(Ok(()))
    }
}

/// A writer whose bytes go to the request as its input, and whose end is the input's end.
pub(crate) fn writer(feeder: Feeder) -> BoxWrite {
    let (ours, mut theirs) = tokio::io::duplex(CHUNK);
    tokio::spawn(async move {
        let mut chunk = vec![0; CHUNK];
        loop {
            match theirs.read(&mut chunk).await {
                Ok(count) if count > 0 => {
                    if !feeder.feed(&chunk[..count]).await {
                        return;
                    }
                }
                _ => return feeder.end().await,
            }
        }
    });
    Box::pin(ours)
}

/// Both directions of a connection, and the request that it lives by.
pub(crate) struct PortStream {
    pub(crate) reader: ChunkReader,
    pub(crate) writer: BoxWrite,
    pub(crate) _request: Request,
}

impl AsyncRead for PortStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(context, buffer)
    }
}

impl AsyncWrite for PortStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.writer.as_mut().poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.writer.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.writer.as_mut().poll_shutdown(context)
    }
}
