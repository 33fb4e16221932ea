//! Frames over Unix sockets: a JSON message, optional raw bytes and up to four descriptors.
//!
//! The same codec serves the client, the launcher, the supervisor and init. Whoever reads treats the
//! other side as hostile: lengths and descriptor counts are checked before anything is kept.

mod messages;

pub(crate) use messages::*;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most descriptors one frame may carry.
pub(crate) const MAX_FDS: usize = 4;
/// Bound of a frame between a caller and a supervisor; argv and environment are the largest content.
pub(crate) const MAX_FRAME: usize = 16 << 20;
/// Bound of a frame that comes from inside a sandbox.
pub(crate) const MAX_INIT_FRAME: usize = 64 << 10;
/// Bound of the raw part of a frame.
pub(crate) const MAX_DATA: usize = 1 << 20;
/// A peer that does not read for so long that this much waits for it is dropped.
const MAX_QUEUED: usize = 2 * MAX_FRAME;

const HEADER: usize = 12;

/// One received message.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    json: Vec<u8>,
    pub(crate) data: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

impl Frame {
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> io::Result<T> {
        serde_json::from_slice(&self.json).map_err(io::Error::other)
    }
}

struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    fds: Vec<OwnedFd>,
}

/// The two halves of a connection's state; the descriptor is passed in, so any event loop can drive it.
pub(crate) struct Codec {
    incoming: Vec<u8>,
    fds: VecDeque<OwnedFd>,
    outgoing: VecDeque<Outgoing>,
    queued: usize,
    max_frame: usize,
}

impl Codec {
    pub(crate) fn new(max_frame: usize) -> Self {
        Self { incoming: Vec::new(), fds: VecDeque::new(), outgoing: VecDeque::new(), queued: 0, max_frame }
    }

    pub(crate) fn queue(
        &mut self,
        message: &impl Serialize,
        data: &[u8],
        fds: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let mut bytes = vec![0; HEADER];
        serde_json::to_writer(&mut bytes, message).map_err(io::Error::other)?;
        let json_len = u32::try_from(bytes.len() - HEADER).map_err(io::Error::other)?;
        let data_len = u32::try_from(data.len()).map_err(io::Error::other)?;
        if bytes.len() > MAX_FRAME || data.len() > MAX_DATA || fds.len() > MAX_FDS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too large"));
        }
        bytes[0..4].copy_from_slice(&json_len.to_le_bytes());
        bytes[4..8].copy_from_slice(&data_len.to_le_bytes());
        bytes[8..12].copy_from_slice(&u32::try_from(fds.len()).unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(data);
        self.queued += bytes.len();
        if self.queued > MAX_QUEUED {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the peer does not read its messages"));
        }
        self.outgoing.push_back(Outgoing { bytes, sent: 0, fds });
        Ok(())
    }

    pub(crate) fn wants_write(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Sends what the socket takes now; `Ok` with frames left means that it is full.
    pub(crate) fn flush(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        while let Some(frame) = self.outgoing.front_mut() {
            let sent = match send_some(fd, &frame.bytes[frame.sent..], &frame.fds) {
                Ok(sent) => sent,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            // The descriptors travelled with the first byte; sending them again would duplicate them.
            frame.fds.clear();
            frame.sent += sent;
            self.queued -= sent;
            if frame.sent == frame.bytes.len() {
                self.outgoing.pop_front();
            }
        }
        Ok(())
    }

    /// Receives what is there; `Ok(false)` means that the peer has closed.
    pub(crate) fn fill(&mut self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        let mut chunk = [0_u8; 16 << 10];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let received = match recvmsg(fd, &mut [IoSliceMut::new(&mut chunk)], &mut control, flags) {
                Ok(received) => received,
                Err(rustix::io::Errno::AGAIN) => return Ok(true),
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::CONNRESET) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = message {
                    self.fds.extend(fds);
                }
            }
            if received.bytes == 0 {
                return Ok(false);
            }
            self.incoming.extend_from_slice(&chunk[..received.bytes]);
            if self.fds.len() > 16 * MAX_FDS {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "too many descriptors"));
            }
            // A short answer does not mean that the socket is empty: one that brings descriptors ends with their
            // message. Whoever watches for edges must read until there is nothing left.
            if self.fds.len() > 8 * MAX_FDS || self.incoming.len() > self.max_frame + MAX_DATA + HEADER {
                return Ok(true);
            }
        }
    }

    /// The next complete frame, if there is one.
    pub(crate) fn next(&mut self) -> io::Result<Option<Frame>> {
        let Some(header) = self.incoming.first_chunk::<HEADER>() else { return Ok(None) };
        let field = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize
        };
        let (json_len, data_len, fd_count) = (field(0), field(4), field(8));
        if json_len > self.max_frame || data_len > MAX_DATA || fd_count > MAX_FDS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is above its bound"));
        }
        let whole = HEADER + json_len + data_len;
        if self.incoming.len() < whole {
            return Ok(None);
        }
        if self.fds.len() < fd_count {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame lacks its descriptors"));
        }
        let frame = Frame {
            json: self.incoming[HEADER..HEADER + json_len].to_vec(),
            data: self.incoming[HEADER + json_len..whole].to_vec(),
            fds: self.fds.drain(..fd_count).collect(),
        };
        self.incoming.drain(..whole);
        if self.incoming.is_empty() {
            // An idle connection holds no buffer.
            self.incoming = Vec::new();
        }
        Ok(Some(frame))
    }
}

fn send_some(fd: BorrowedFd<'_>, bytes: &[u8], fds: &[OwnedFd]) -> rustix::io::Result<usize> {
    let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(rustix::io::Errno::INVAL);
    }
    sendmsg(fd, &[IoSlice::new(bytes)], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}

/// A connection with its descriptor, for the event loops of supervisor and init and for blocking use.
pub(crate) struct Conn {
    pub(crate) fd: OwnedFd,
    pub(crate) codec: Codec,
}

impl Conn {
    pub(crate) fn new(fd: OwnedFd, max_frame: usize) -> Self {
        Self { fd, codec: Codec::new(max_frame) }
    }

    pub(crate) fn send(
        &mut self,
        message: &impl Serialize,
        data: &[u8],
        fds: Vec<OwnedFd>,
    ) -> io::Result<()> {
        self.codec.queue(message, data, fds)?;
        self.codec.flush(self.fd.as_fd())
    }

    /// Sends and waits until everything is out, at most `timeout_ms`.
    pub(crate) fn send_blocking(
        &mut self,
        message: &impl Serialize,
        fds: Vec<OwnedFd>,
        timeout_ms: i32,
    ) -> io::Result<()> {
        self.send(message, &[], fds)?;
        while self.codec.wants_write() {
            wait_for(self.fd.as_fd(), rustix::event::PollFlags::OUT, timeout_ms)?;
            self.codec.flush(self.fd.as_fd())?;
        }
        Ok(())
    }

    /// The next frame, waited for at most `timeout_ms` (-1: for ever); `None` when the peer has closed.
    pub(crate) fn receive_blocking(&mut self, timeout_ms: i32) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.codec.next()? {
                return Ok(Some(frame));
            }
            wait_for(self.fd.as_fd(), rustix::event::PollFlags::IN, timeout_ms)?;
            if !self.codec.fill(self.fd.as_fd())? {
                return self.codec.next();
            }
        }
    }
}

fn wait_for(fd: BorrowedFd<'_>, flags: rustix::event::PollFlags, timeout_ms: i32) -> io::Result<()> {
    let timeout = (timeout_ms >= 0).then(|| rustix::time::Timespec {
        tv_sec: i64::from(timeout_ms / 1000),
        tv_nsec: i64::from(timeout_ms % 1000) * 1_000_000,
    });
    let mut fds = [rustix::event::PollFd::new(&fd, flags)];
    loop {
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A connected pair of stream sockets, closed on exec.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}
