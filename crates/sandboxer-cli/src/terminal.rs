//! The terminal of this process: its size, and raw mode that is undone on every way out.

use std::io::IsTerminal as _;
use std::sync::Mutex;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use sandboxer_core::exec::TtySize;

/// What the terminal was before raw mode; for the guard and, should it never run, for the panic hook.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Raw mode as long as it lives.
pub(crate) struct RawMode(());

impl RawMode {
    /// Every key goes through as it is, Ctrl-C included. Nothing where stdin is not a terminal.
    pub(crate) fn enter() -> Option<Self> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return None;
        }
        let before = tcgetattr(&stdin).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(before);
        let guard = Self(());
        // The guard is there first: a change that was half made is undone as well.
        tcsetattr(&stdin, OptionalActions::Now, &raw).ok()?;
        Some(guard)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

/// The terminal as it was. Does nothing where it was never changed.
fn restore() {
    let before = match BEFORE.try_lock() {
        Ok(mut before) => before.take(),
        Err(_) => None,
    };
    if let Some(before) = before {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &before);
    }
}

/// A panic aborts in release builds, and then no guard runs.
pub(crate) fn restore_on_panic() {
    let next = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        restore();
        next(info);
    }));
}

/// The size of whichever of our streams is a terminal.
pub(crate) fn size() -> Option<TtySize> {
    let found = tcgetwinsize(std::io::stdin())
        .or_else(|_| tcgetwinsize(std::io::stdout()))
        .or_else(|_| tcgetwinsize(std::io::stderr()))
        .ok()?;
    (found.ws_row > 0 && found.ws_col > 0).then_some(TtySize { rows: found.ws_row, cols: found.ws_col })
}
