//! Making processes and telling them apart.

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// Which side of a fork this is.
pub(crate) enum Forked {
    Child,
    Parent(Pid),
}

/// Forks. The caller must be single-threaded: the child goes on to allocate.
pub(crate) fn fork() -> io::Result<Forked> {
    // SAFETY: launcher, supervisor and init have one thread each, so no lock can be held by another one.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Pid::from_raw(pid).map(Forked::Parent).ok_or_else(|| io::ErrorKind::Other.into()),
    }
}

/// Forks without copying the memory: the child runs `run` on a stack of its own until it executes a
/// program or ends, and the caller stands still meanwhile. For a child that does nothing else, this saves
/// the copying of page tables that the program throws away at once.
pub(crate) fn fork_sharing<F: FnOnce()>(run: F) -> io::Result<Pid> {
    extern "C" fn enter<F: FnOnce()>(argument: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the caller passes a pointer to its own `Option<F>`, which lives while it stands still.
        if let Some(run) = unsafe { (*argument.cast::<Option<F>>()).take() } {
            run();
        }
        1
    }
    const STACK: usize = 256 << 10;
    let mut stack: Vec<u128> = Vec::with_capacity(STACK / size_of::<u128>());
    let mut run = Some(run);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is ours, aligned, grows down from its end and outlives the child's use of it, because
    // CLONE_VFORK holds us until the child has its own memory; there is no other thread to run meanwhile.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(STACK / size_of::<u128>());
        libc::clone(enter::<F>, top.cast(), flags, (&raw mut run).cast())
    };
    match Pid::from_raw(pid) {
        Some(pid) if pid.as_raw_nonzero().get() > 0 => Ok(pid),
        _ => Err(io::Error::last_os_error()),
    }
}

#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Forks into new namespaces, with a descriptor of the child, and on cgroup v2 straight into its cgroup.
pub(crate) fn clone_into(
    namespaces: libc::c_int,
    cgroup: Option<BorrowedFd<'_>>,
) -> io::Result<Option<(Pid, OwnedFd)>> {
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let mut pidfd: libc::c_int = -1;
    let mut args = CloneArgs {
        flags: namespaces as u64 | libc::CLONE_PIDFD as u64,
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: without CLONE_VM the child has a copy of our memory, as after `fork`, and we have one thread;
    // the kernel writes the descriptor to `pidfd`, which outlives the call.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<CloneArgs>()) };
    match pid {
        0 => Ok(None),
        pid if pid > 0 => {
            // SAFETY: the kernel has just made this descriptor for us.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::Other)?;
            Ok(Some((pid, pidfd)))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes what this process is in now the root of its view of the cgroups.
pub(crate) fn unshare_cgroups() -> io::Result<()> {
    // SAFETY: changes a namespace of this process only; no memory is involved.
    if unsafe { libc::unshare(libc::CLONE_NEWCGROUP) } != 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Replaces the process; returns only the error.
pub(crate) fn exec(path: &CString, argv: &[CString], env: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain(std::iter::once(std::ptr::null())).collect()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: both arrays end with a null pointer and their strings live until the call returns.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Leaves without running destructors or exit handlers of the process this one was forked from.
pub(crate) fn leave(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions and does not return.
    unsafe { libc::_exit(code) }
}

/// Closes every descriptor from `first` on.
pub(crate) fn close_from(first: u32) {
    // SAFETY: the callers own no descriptor value above `first` any more that they would use or drop.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if closed != 0 {
        for fd in first..4096 {
            // SAFETY: as above.
            unsafe { libc::close(fd as libc::c_int) };
        }
    }
}

/// A descriptor number as an owned descriptor.
pub(crate) fn adopt(fd: i32) -> OwnedFd {
    // SAFETY: called once for a number that this process was started with for exactly this use.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Closes a descriptor that a forked child has inherited and must not keep.
pub(crate) fn close(fd: i32) {
    // SAFETY: the child never returns to the code that owns this number, so nothing uses it again.
    unsafe { libc::close(fd) };
}

/// Puts `/dev/null` in the place of a descriptor.
pub(crate) fn replace_with_null(number: i32) {
    use rustix::fs::{Mode, OFlags};
    if let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        let _ = move_to(&null, number);
    }
}

/// Makes `fd` the descriptor `number`, inherited over exec.
pub(crate) fn move_to(fd: &OwnedFd, number: i32) -> io::Result<()> {
    // SAFETY: both are descriptor numbers of this process; what `number` was before is not used again.
    if unsafe { libc::dup2(fd.as_raw_fd(), number) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Whose files new ones are; also drops the file capabilities while it is not root.
pub(crate) fn set_fs_ids(uid: u32, gid: u32) {
    // SAFETY: plain calls without memory arguments.
    unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
    }
}

/// When a process was started, in clock ticks: with its id it names one process and no later one.
pub(crate) fn start_time(pid: i32) -> Option<u64> {
    stat_field(pid, 19)?.parse().ok()
}

/// The parent of a process.
pub(crate) fn parent_of(pid: i32) -> Option<i32> {
    stat_field(pid, 1)?.parse().ok()
}

/// A field of `/proc/<pid>/stat`, counted from the one after the name, which may contain anything.
fn stat_field(pid: i32, index: usize) -> Option<String> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after = stat.iter().rposition(|b| *b == b')')? + 2;
    let text = std::str::from_utf8(stat.get(after..)?).ok()?;
    text.split(' ').nth(index).map(str::to_owned)
}

/// Opens exactly the process that was recorded, or nothing.
pub(crate) fn open_recorded(pid: i32, start: u64) -> Option<OwnedFd> {
    let fd = rustix::process::pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    // Compared after opening: the descriptor cannot move to another process any more.
    (start_time(pid) == Some(start)).then_some(fd)
}

/// Kills by descriptor and waits until the process is gone; false if it still is there after that time.
pub(crate) fn kill_and_wait(pidfd: &OwnedFd, timeout_ms: i64) -> bool {
    let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
    let mut fds = [rustix::event::PollFd::new(pidfd, rustix::event::PollFlags::IN)];
    let timeout =
        rustix::time::Timespec { tv_sec: timeout_ms / 1000, tv_nsec: (timeout_ms % 1000) * 1_000_000 };
    matches!(rustix::event::poll(&mut fds, Some(&timeout)), Ok(1))
}

/// Reaps one child that has ended, if there is one.
pub(crate) fn reap() -> Option<(Pid, WaitStatus)> {
    rustix::process::wait(WaitOptions::NOHANG).ok().flatten()
}
