//! Terminals: one of ours, whose size and modes the SSH client takes over to the host.

use std::io::Error as IoError;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
use sandboxer_core::exec::TtySize;
use sandboxer_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;

/// Our end of a command's terminal.
pub(crate) struct Terminal {
    ours: OwnedFd,
    /// Who has to be told when the size changes; nobody where the kernel does it.
    watcher: AtomicU32,
}

impl Terminal {
    /// A terminal of this size, and its other end.
    pub(crate) fn open(size: TtySize) -> Result<(Arc<Self>, OwnedFd)> {
        let open = || {
            let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
            let ours = openpt(flags)?;
            grantpt(&ours)?;
            unlockpt(&ours)?;
            let theirs = ioctl_tiocgptpeer(&ours, flags)?;
            tcsetwinsize(&theirs, winsize(size))?;
            rustix::io::ioctl_fionbio(&ours, true)?;
            Ok::<_, rustix::io::Errno>((ours, theirs))
        };
        let (ours, theirs) = open().map_err(|errno| failed(errno.into()))?;
        Ok((Arc::new(Self { ours, watcher: AtomicU32::new(0) }), theirs))
    }

    /// From now on bytes pass as they are: the terminal on the host interprets them.
    pub(crate) fn make_raw(&self, watcher: u32) -> Result<()> {
        self.watcher.store(watcher, Ordering::Relaxed);
        let fd = &self.ours;
        let mut modes = tcgetattr(fd).map_err(|errno| failed(errno.into()))?;
        modes.make_raw();
        tcsetattr(fd, OptionalActions::Now, &modes).map_err(|errno| failed(errno.into()))
    }

    pub(crate) fn resize(&self, size: TtySize) -> Result<()> {
        tcsetwinsize(&self.ours, winsize(size)).map_err(|errno| failed(errno.into()))?;
        // The SSH client looks at the size again when it is told that it changed.
        let watcher = i32::try_from(self.watcher.load(Ordering::Relaxed)).unwrap_or_default();
        if let Some(pid) = rustix::process::Pid::from_raw(watcher) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::WINCH);
        }
        Ok(())
    }
}

fn winsize(size: TtySize) -> Winsize {
    Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 }
}

fn failed(source: IoError) -> Error {
    Error::new(ErrorKind::BackendFailed, "there is no terminal to be had").with_source(source)
}

impl Terminal {
    /// What comes from the terminal. The runtime's pipes are good for every descriptor that can be polled.
    pub(crate) fn output(&self) -> Result<TerminalOutput> {
        let copy = self.ours.try_clone().map_err(failed)?;
        pipe::Receiver::from_owned_fd_unchecked(copy).map(TerminalOutput).map_err(failed)
    }

    /// What goes to the terminal.
    pub(crate) fn input(&self) -> Result<pipe::Sender> {
        let copy = self.ours.try_clone().map_err(failed)?;
        pipe::Sender::from_owned_fd_unchecked(copy).map_err(failed)
    }
}

/// The end of a terminal is an error to the kernel and an end to us.
pub(crate) struct TerminalOutput(pipe::Receiver);

impl AsyncRead for TerminalOutput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let gone = Some(rustix::io::Errno::IO.raw_os_error());
        match ready!(Pin::new(&mut self.0).poll_read(cx, buf)) {
            Err(error) if error.raw_os_error() == gone => Poll::Ready(Ok(())),
            other => Poll::Ready(other),
        }
    }
}
