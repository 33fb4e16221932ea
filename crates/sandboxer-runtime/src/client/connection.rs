//! One asynchronous connection to a supervisor.

use crate::dirs;
use crate::error::{AtStep as _, ErrorKind, Result, RuntimeError};
use crate::wire::{Codec, Frame, MAX_FRAME, Reply, Request};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::Serialize;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

pub(crate) struct Connection {
    fd: AsyncFd<OwnedFd>,
    codec: Codec,
}

impl Connection {
    /// Must be called inside a runtime.
    pub(crate) fn new(fd: OwnedFd) -> Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true).at("connect", "cannot prepare the control connection")?;
        // SAFETY: an `OwnedFd` gives the same descriptor for all its life, and it is closed with the `AsyncFd`.
        let fd = unsafe { AsyncFd::register(fd) }.at("connect", "cannot watch the control connection")?;
        Ok(Self { fd, codec: Codec::new(MAX_FRAME) })
    }

    /// Connects through the directory's descriptor, so that the length of its path does not matter.
    pub(crate) async fn open(dir: &OwnedFd, id: &str) -> Result<Self> {
        let path = format!("/proc/self/fd/{}/{}", dir.as_raw_fd(), dirs::SOCKET);
        let address = SocketAddrUnix::new(path.as_str()).at("connect", "cannot name the control socket")?;
        for _ in 0..400 {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
                .at("connect", "cannot make a control connection")?;
            match connect(&socket, &address) {
                Ok(()) => return Self::new(socket),
                // A full backlog empties as soon as the supervisor runs again.
                Err(rustix::io::Errno::AGAIN) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::CONNREFUSED) => {
                    return Err(RuntimeError::not_running(id));
                }
                Err(error) => return Err(error).at("connect", format!("cannot reach sandbox `{id}`")),
            }
        }
        Err(RuntimeError::new(
            ErrorKind::Busy,
            "connect",
            format!("sandbox `{id}` takes no more connections"),
        ))
    }

    pub(crate) async fn send(
        &mut self,
        message: &impl Serialize,
        data: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Result<()> {
        self.codec.queue(message, data, fds).map_err(|e| RuntimeError::invalid(e.to_string()))?;
        loop {
            self.codec.flush(self.fd.as_fd()).map_err(|_| gone())?;
            if !self.codec.wants_write() {
                return Ok(());
            }
            let mut ready = self.fd.writable().await.map_err(|_| gone())?;
            ready.clear_ready();
        }
    }

    /// The next message; safe to drop and call again.
    pub(crate) async fn receive(&mut self) -> Result<(Reply, Frame)> {
        loop {
            let next = self.codec.next().map_err(|e| RuntimeError::protocol(e.to_string()))?;
            if let Some(frame) = next {
                let reply =
                    frame.parse().map_err(|e| RuntimeError::protocol(format!("unreadable answer: {e}")))?;
                return Ok((reply, frame));
            }
            let mut ready = self.fd.readable().await.map_err(|_| gone())?;
            // Cleared before reading: bytes that come in between make it ready again.
            ready.clear_ready();
            drop(ready);
            if !self.codec.fill(self.fd.as_fd()).map_err(|_| gone())? {
                let next = self.codec.next().map_err(|e| RuntimeError::protocol(e.to_string()))?;
                let Some(frame) = next else { return Err(gone()) };
                let reply =
                    frame.parse().map_err(|e| RuntimeError::protocol(format!("unreadable answer: {e}")))?;
                return Ok((reply, frame));
            }
        }
    }

    /// One request, one answer, in bounded time; an answer that reports a failure becomes the error.
    pub(crate) async fn call(
        &mut self,
        request: &Request,
        data: &[u8],
        limit: Option<Duration>,
    ) -> Result<(Reply, Frame)> {
        self.send(request, data, Vec::new()).await?;
        let (reply, frame) = match limit {
            Some(limit) => tokio::time::timeout(limit, self.receive()).await.map_err(|_| no_answer())??,
            None => self.receive().await?,
        };
        match reply {
            Reply::Failed(error) => Err(error),
            reply => Ok((reply, frame)),
        }
    }
}

pub(crate) fn no_answer() -> RuntimeError {
    RuntimeError::new(ErrorKind::Timeout, "control", "the supervisor did not answer in time")
}

/// What a closed connection means: the supervisor ended, with the sandbox.
fn gone() -> RuntimeError {
    RuntimeError::new(ErrorKind::NotRunning, "control", "the sandbox ended while it was being talked to")
}

pub(crate) fn unexpected(reply: &Reply) -> RuntimeError {
    RuntimeError::protocol(format!("unexpected answer {:.60}", format!("{reply:?}")))
}
