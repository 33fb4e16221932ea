//! OpenSSH's multiplexing protocol (its `PROTOCOL.mux`), as far as we need it: sessions and forwarded connections over
//! the control socket of a running client, without a process of our own per command.

use std::io::{Error as IoError, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, Interest, ReadBuf};
use tokio::net::UnixStream;

const VERSION: u32 = 4;
const MSG_HELLO: u32 = 0x0000_0001;
const C_NEW_SESSION: u32 = 0x1000_0002;
const C_ALIVE_CHECK: u32 = 0x1000_0004;
const C_TERMINATE: u32 = 0x1000_0005;
const C_NEW_STDIO_FWD: u32 = 0x1000_0008;
const S_FAILURE: u32 = 0x8000_0003;
const S_EXIT_MESSAGE: u32 = 0x8000_0004;
const S_ALIVE: u32 = 0x8000_0005;
const S_SESSION_OPENED: u32 = 0x8000_0006;
/// No packet of the protocol is anywhere near this.
const MOST: usize = 256 << 10;

/// Why there is no session.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The server takes no more sessions on this connection.
    Full,
    /// Nothing listens there.
    Port(String),
    /// The client behind the socket is gone or speaks another language.
    Broken(IoError),
}

impl Refused {
    pub(crate) fn io(source: IoError) -> Self {
        Self::Broken(source)
    }
}

/// A greeted connection to the control socket.
pub(crate) struct Client {
    stream: UnixStream,
}

impl Client {
    pub(crate) async fn connect(socket: &Path) -> Result<Self, IoError> {
        let mut client = Self { stream: UnixStream::connect(socket).await? };
        client.send(Packet::new(MSG_HELLO).number(VERSION)).await?;
        let mut hello = client.receive().await?;
        match (hello.number(), hello.number()) {
            (Some(MSG_HELLO), Some(VERSION)) => Ok(client),
            _ => Err(IoError::other("the SSH client's control socket speaks an unknown version")),
        }
    }

    /// The process that holds the connection.
    pub(crate) async fn pid(&mut self) -> Result<u32, Refused> {
        self.send(Packet::new(C_ALIVE_CHECK).number(0)).await.map_err(Refused::io)?;
        let mut answer = self.receive().await.map_err(Refused::io)?;
        match (answer.number(), answer.number(), answer.number()) {
            (Some(S_ALIVE), Some(_), Some(pid)) => Ok(pid),
            _ => Err(Refused::Broken(IoError::other("the SSH client does not say who it is"))),
        }
    }

    /// Asks the client to end, with its connection.
    pub(crate) async fn terminate(mut self) {
        if self.send(Packet::new(C_TERMINATE).number(0)).await.is_ok() {
            let _ = tokio::time::timeout(std::time::Duration::from_secs(2), self.receive()).await;
        }
    }

    /// Runs a command on these descriptors, with a terminal if one is named.
    pub(crate) async fn session(
        self,
        command: &str,
        terminal: Option<&str>,
        fds: [OwnedFd; 3],
    ) -> Result<Session, Refused> {
        let request = Packet::new(C_NEW_SESSION)
            .number(1)
            .text("")
            .number(u32::from(terminal.is_some()))
            .number(0) // no X11
            .number(0) // no agent
            .number(0) // no subsystem
            .number(u32::MAX) // no escape character
            .text(terminal.unwrap_or(""))
            .text(command);
        self.open(request, &fds).await.map_err(|refused| match refused {
            Refused::Port(_) => Refused::Full,
            other => other,
        })
    }

    /// Joins these descriptors to a port as seen from the host.
    pub(crate) async fn forward(self, host: &str, port: u16, fds: [OwnedFd; 2]) -> Result<Session, Refused> {
        let request = Packet::new(C_NEW_STDIO_FWD).number(1).text("").text(host).number(u32::from(port));
        self.open(request, &fds).await
    }

    async fn open(mut self, request: Packet, fds: &[OwnedFd]) -> Result<Session, Refused> {
        self.send(request).await.map_err(Refused::io)?;
        for fd in fds {
            self.pass(fd.as_fd()).await.map_err(Refused::io)?;
        }
        let mut answer = self.receive().await.map_err(Refused::io)?;
        match (answer.number(), answer.number()) {
            (Some(S_SESSION_OPENED), _) => Ok(Session { client: self }),
            (Some(S_FAILURE), _) => Err(Refused::Port(answer.text().unwrap_or_default())),
            _ => Err(Refused::Broken(IoError::other("the SSH client refused a session"))),
        }
    }

    async fn send(&mut self, packet: Packet) -> Result<(), IoError> {
        self.stream.write_all(&packet.framed()).await
    }

    async fn receive(&mut self) -> Result<Answer, IoError> {
        let length = self.stream.read_u32().await? as usize;
        if length > MOST {
            return Err(IoError::other("the SSH client's control socket speaks nonsense"));
        }
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).await?;
        Ok(Answer { bytes, at: 0 })
    }

    /// One descriptor goes along with one byte.
    async fn pass(&self, fd: BorrowedFd<'_>) -> Result<(), IoError> {
        loop {
            self.stream.writable().await?;
            let sent = self.stream.try_io(Interest::WRITABLE, || {
                let fds = [fd];
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut ancillary = SendAncillaryBuffer::new(&mut space);
                ancillary.push(SendAncillaryMessage::ScmRights(&fds));
                sendmsg(&self.stream, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)
                    .map_err(IoError::from)
            });
            match sent {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// An open session. Dropping it closes the channel.
pub(crate) struct Session {
    client: Client,
}

impl Session {
    /// Waits until the session is over and gives its exit code. An error means that the connection was lost.
    ///
    /// The exit code may come before the last output; the client closes the line when everything has been delivered.
    pub(crate) async fn ended(mut self) -> Result<Option<i32>, IoError> {
        let mut code = None;
        loop {
            let mut message = match self.client.receive().await {
                Ok(message) => message,
                Err(error) => return code.ok_or(error),
            };
            if message.number() == Some(S_EXIT_MESSAGE) {
                let _session = message.number();
                code = Some(message.number().and_then(|code| i32::try_from(code).ok()));
            }
        }
    }
}

/// A forwarded connection: our end of a socket pair, and the session that keeps the other end joined.
pub(crate) struct Forwarded {
    stream: UnixStream,
    _session: Session,
}

impl Forwarded {
    pub(crate) fn new(stream: UnixStream, session: Session) -> Self {
        Self { stream, _session: session }
    }
}

impl AsyncRead for Forwarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Forwarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A packet that is being written.
struct Packet(Vec<u8>);

impl Packet {
    fn new(kind: u32) -> Self {
        Self(kind.to_be_bytes().to_vec())
    }

    fn number(mut self, number: u32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn text(self, text: &str) -> Self {
        let mut packet = self.number(u32::try_from(text.len()).unwrap_or(u32::MAX));
        packet.0.extend(text.as_bytes());
        packet
    }

    fn framed(self) -> Vec<u8> {
        let mut framed = u32::try_from(self.0.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
        framed.extend(self.0);
        framed
    }
}

/// A packet that is being read.
struct Answer {
    bytes: Vec<u8>,
    at: usize,
}

impl Answer {
    fn number(&mut self) -> Option<u32> {
        let bytes = self.bytes.get(self.at..self.at + 4)?;
        self.at += 4;
        bytes.try_into().ok().map(u32::from_be_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let length = self.number()? as usize;
        let bytes = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}
