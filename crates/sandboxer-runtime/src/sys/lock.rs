//! Open-file-description locks: unlike `flock` they can be asked about without being taken, so looking
//! at a sandbox never makes it seem alive to somebody else.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

fn description(kind: libc::c_int) -> libc::flock {
    // SAFETY: `flock` is plain data for which zero is a valid value of every field.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

/// Takes the lock if it is free; held until the last duplicate of the descriptor is closed.
pub(crate) fn try_take(fd: &OwnedFd) -> io::Result<bool> {
    let lock = description(libc::F_WRLCK);
    // SAFETY: the descriptor is open and the kernel only reads the structure.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &lock) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        error => Err(error),
    }
}

/// Whether somebody holds the lock.
pub(crate) fn is_held(fd: &OwnedFd) -> io::Result<bool> {
    // A read lock would be refused exactly while the supervisor has its write lock.
    let mut lock = description(libc::F_RDLCK);
    // SAFETY: the descriptor is open and the structure is ours to be written to.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}
