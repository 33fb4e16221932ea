//! The signals that end commands, as a stream. While one of these is there, none of them ends the process by itself.

use sandboxer_core::{Error, ErrorKind, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) const SIGHUP: i32 = 1;
pub(crate) const SIGINT: i32 = 2;
pub(crate) const SIGQUIT: i32 = 3;
pub(crate) const SIGKILL: i32 = 9;
pub(crate) const SIGTERM: i32 = 15;

pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    quit: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            quit: listen(SignalKind::quit())?,
        })
    }

    /// The next one's number.
    pub(crate) async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => SIGINT,
            _ = self.terminate.recv() => SIGTERM,
            _ = self.hang_up.recv() => SIGHUP,
            _ = self.quit.recv() => SIGQUIT,
        }
    }
}

/// Changes of the terminal's size.
pub(crate) fn window_changes() -> Result<Signal> {
    listen(SignalKind::window_change())
}

fn listen(kind: SignalKind) -> Result<Signal> {
    signal(kind)
        .map_err(|source| Error::new(ErrorKind::Internal, "signals cannot be received").with_source(source))
}
