//! Calls after which the engine hands its connection over as a raw stream: attach, and the start of an exec.
//!
//! bollard guesses from the first byte whether a stream is framed, which a terminal's output can fool; here it is known.

use std::io;

use sandboxer_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::client::Connected;
use crate::errors::{said, unreachable};

/// The most that the head of an answer, or the message of a refusal, may take.
const HEAD_LIMIT: usize = 16 * 1024;

/// The engine sends frames of some kilobytes.
const FRAME_LIMIT: u32 = 16 << 20;

/// A connection that belongs to a process now.
pub(crate) struct Hijacked {
    pub(crate) input: OwnedWriteHalf,
    pub(crate) output: Output,
}

/// What the process writes. Bytes that came along with the answer's head come first.
pub(crate) struct Output {
    early: io::Cursor<Vec<u8>>,
    rest: OwnedReadHalf,
}

/// Which stream a piece of output belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Stdout,
    Stderr,
}

impl Connected {
    /// Posts and takes the connection over.
    pub(crate) async fn hijack(&self, path: &str, body: &str, doing: &str) -> Result<Hijacked> {
        let mut stream = UnixStream::connect(self.socket()).await.map_err(unreachable)?;
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: docker\r\nContent-Type: application/json\r\nConnection: Upgrade\r\n\
             Upgrade: tcp\r\nContent-Length: {}\r\n\r\n{body}",
            self.versioned(path),
            body.len()
        );
        stream.write_all(request.as_bytes()).await.map_err(unreachable)?;
        let (head, early) = read_head(&mut stream).await?;
        match status_of(&head) {
            Some(101 | 200) => {
                let (rest, input) = stream.into_split();
                Ok(Hijacked { input, output: Output { early: io::Cursor::new(early), rest } })
            }
            Some(status) => Err(said(status, &refusal(stream, early).await, doing)),
            None => Err(Error::new(ErrorKind::BackendFailed, "the docker engine does not speak HTTP")),
        }
    }
}

async fn read_head(stream: &mut UnixStream) -> Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let early = bytes.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), early));
        }
        let read = stream.read_buf(&mut bytes).await.map_err(unreachable)?;
        if read == 0 || bytes.len() > HEAD_LIMIT {
            return Err(unreachable(io::Error::from(io::ErrorKind::UnexpectedEof)));
        }
    }
}

fn status_of(head: &str) -> Option<u16> {
    head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

/// The message of an answer that is no stream; its end is the connection's, or that of the document.
async fn refusal(mut stream: UnixStream, mut bytes: Vec<u8>) -> String {
    loop {
        let text = String::from_utf8_lossy(&bytes);
        let document = text.find('{').zip(text.rfind('}')).and_then(|(start, end)| text.get(start..=end));
        if let Some(Ok(document)) = document.map(serde_json::from_str::<serde_json::Value>) {
            return document["message"].as_str().unwrap_or_default().to_owned();
        }
        match stream.read_buf(&mut bytes).await {
            Ok(read) if read > 0 && bytes.len() < HEAD_LIMIT => {}
            _ => return String::from_utf8_lossy(&bytes).into_owned(),
        }
    }
}

impl Output {
    /// The next piece of a framed stream; `None` at its end.
    pub(crate) async fn frame(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Source>> {
        let mut header = [0u8; 8];
        match self.read(&mut header[..1]).await? {
            0 => return Ok(None),
            _ => self.read_exact(&mut header[1..]).await?,
        };
        let source = match header[0] {
            0 | 1 => Source::Stdout,
            2 => Source::Stderr,
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "the engine's stream has no frames")),
        };
        let length = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        if length > FRAME_LIMIT {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a frame of the engine's stream is too large",
            ));
        }
        buffer.clear();
        let read = (&mut *self).take(u64::from(length)).read_to_end(buffer).await?;
        if read < usize::try_from(length).unwrap_or(usize::MAX) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Some(source))
    }
}

impl AsyncRead for Output {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        if self.early.position() < self.early.get_ref().len() as u64 {
            return std::pin::Pin::new(&mut self.early).poll_read(context, buffer);
        }
        std::pin::Pin::new(&mut self.rest).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::status_of;

    #[test]
    fn the_status_is_read_from_the_first_line() {
        assert_eq!(status_of("HTTP/1.1 101 UPGRADED\r\n"), Some(101));
        assert_eq!(status_of("HTTP/1.1 x\r\n"), None);
        assert_eq!(status_of(""), None);
    }
}
