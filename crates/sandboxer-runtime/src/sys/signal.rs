//! Signal masks and signal descriptors.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: the set is initialised by `sigemptyset` before any use; the signals are valid numbers.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        set
    }
}

/// Blocks the signals and gives a descriptor that is readable when one of them came.
pub(crate) fn descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    let set = set_of(signals);
    // SAFETY: the set is initialised; the returned descriptor is new and owned by nobody else.
    unsafe {
        if libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Empties a signal descriptor; which signals they were is found out by looking.
pub(crate) fn drain(fd: &OwnedFd) -> Vec<i32> {
    const RECORD: usize = size_of::<libc::signalfd_siginfo>();
    let mut seen = Vec::new();
    let mut buffer = [0_u8; RECORD * 8];
    while let Ok(count) = rustix::io::read(fd, &mut buffer) {
        for record in buffer[..count].chunks_exact(RECORD) {
            // The number is the record's first field.
            seen.push(i32::from_ne_bytes([record[0], record[1], record[2], record[3]]));
        }
        if count < buffer.len() {
            break;
        }
    }
    seen
}

/// What a command expects at its start: nothing blocked, everything at its default.
pub(crate) fn reset() {
    for signal in 1..=64 {
        // SAFETY: setting a disposition to the default has no preconditions; impossible ones are refused.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let none = set_of(&[]);
    // SAFETY: the set is initialised and the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()) };
}

/// The same for the few that launcher, supervisor and init have changed.
pub(crate) fn reset_changed() {
    for signal in [libc::SIGCHLD, libc::SIGPIPE, libc::SIGHUP] {
        // SAFETY: the default is a valid disposition of a valid signal.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let none = set_of(&[]);
    // SAFETY: the set is initialised and the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()) };
}

/// Only `SIGPIPE` ignored and `SIGCHLD` as given: what launcher and supervisor run with.
pub(crate) fn set_child_reaping(automatic: bool) {
    let disposition = if automatic { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: both are valid dispositions of a valid signal.
    unsafe {
        libc::signal(libc::SIGCHLD, disposition);
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
    }
}
