//! What the kernel alone needs: the floor below every sandbox, measured without any of our code around it.
//!
//! `floor namespaces` clones into the namespaces of a sandbox, mounts an overlay over `/usr`, makes it the root and
//! runs `/bin/true`; `floor fork` only forks and runs it. Each iteration prints its nanoseconds on a line. With a
//! count it runs that often; without, once for every line on stdin, so that a caller can take turns with others.

// One syscall a step, as in the runtime itself; nothing here is shared with it, or it would not be a floor.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io::{self, BufRead as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

const TRUE: &CStr = c"/bin/true";
const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// The child's steps, told to the parent as its exit status when one of them fails.
const STEPS: [&str; 8] = ["map", "private", "overlay", "chdir", "pivot_root", "umount", "chdir /", "exec"];
const FIRST_STATUS: i32 = 100;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let mode = args.next().unwrap_or_default();
    let count = args.next().map(|text| text.parse::<u64>());
    let outcome = match (mode.as_str(), count) {
        ("fork", None) => run(None, plain),
        ("fork", Some(Ok(count))) => run(Some(count), plain),
        ("namespaces", None) => Workshop::new().and_then(|mut place| run(None, || place.isolated())),
        ("namespaces", Some(Ok(count))) => {
            Workshop::new().and_then(|mut place| run(Some(count), || place.isolated()))
        }
        _ => {
            complain("usage: floor namespaces|fork [COUNT]");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("floor {mode}: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Runs the iterations and prints each duration at once.
fn run(count: Option<u64>, mut iteration: impl FnMut() -> io::Result<u128>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut print = |nanos: u128| writeln!(out, "{nanos}").and_then(|()| out.flush());
    match count {
        Some(count) => (0..count).try_for_each(|_| iteration().and_then(&mut print)),
        None => io::stdin().lock().lines().try_for_each(|line| {
            line?;
            iteration().and_then(&mut print)
        }),
    }
}

/// fork, exec, wait.
fn plain() -> io::Result<u128> {
    let start = Instant::now();
    // SAFETY: this process has one thread, and the child does nothing but exec or leave.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            exec_true();
            leave(7)
        }
        child => {
            wait(child)?;
            Ok(start.elapsed().as_nanos())
        }
    }
}

/// The directories that an iteration mounts.
struct Workshop {
    root: PathBuf,
    turn: u64,
}

impl Workshop {
    fn new() -> io::Result<Self> {
        let root = std::env::temp_dir().join(format!("sandboxer-floor-{}", std::process::id()));
        std::fs::create_dir(&root)?;
        std::fs::create_dir(root.join("mnt"))?;
        Ok(Self { root, turn: 0 })
    }

    /// clone with all namespaces, overlay, pivot_root, exec, wait. The writable layer is made before the clock
    /// starts and removed after it stops: a floor has only what cannot be left out.
    fn isolated(&mut self) -> io::Result<u128> {
        self.turn += 1;
        let layer = self.root.join(self.turn.to_string());
        for name in ["", "upper", "work"] {
            std::fs::create_dir(layer.join(name))?;
        }
        let steps = Steps::new(&self.root, &layer)?;
        let start = Instant::now();
        steps.run()?;
        let nanos = start.elapsed().as_nanos();
        std::fs::remove_dir_all(&layer)?;
        Ok(nanos)
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// Everything that the child needs, made before the clone so that it only makes system calls.
struct Steps {
    target: CString,
    options: CString,
}

impl Steps {
    fn new(root: &Path, layer: &Path) -> io::Result<Self> {
        let layer = layer.display();
        let options = format!("lowerdir=/usr,upperdir={layer}/upper,workdir={layer}/work,userxattr,volatile");
        Ok(Self {
            target: CString::new(root.join("mnt").into_os_string().into_encoded_bytes())?,
            options: CString::new(options)?,
        })
    }

    fn run(&self) -> io::Result<()> {
        let (go_read, go_write) = pipe()?;
        let flags = NAMESPACES | libc::SIGCHLD;
        // SAFETY: without CLONE_VM and with no stack given this is a fork, and this process has one thread.
        let child = unsafe { libc::syscall(libc::SYS_clone, flags as libc::c_ulong, 0, 0, 0, 0) };
        match child {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let mut byte = 0u8;
                // SAFETY: `byte` is one writable byte.
                let got = unsafe { libc::read(go_read.as_raw_fd(), (&raw mut byte).cast(), 1) };
                leave(if got == 1 { self.inside() } else { 0 })
            }
            child => {
                let child = child as libc::pid_t;
                let mapped = map_ids(child).and_then(|()| {
                    // SAFETY: writes one byte of a constant.
                    match unsafe { libc::write(go_write.as_raw_fd(), c"g".as_ptr().cast(), 1) } {
                        1 => Ok(()),
                        _ => Err(io::Error::last_os_error()),
                    }
                });
                // Closed, so that a child that was never mapped reads the end and leaves.
                drop(go_write);
                let waited = wait(child);
                mapped.and(waited)
            }
        }
    }

    /// The index of the step that failed; returns only then.
    fn inside(&self) -> usize {
        let none = std::ptr::null();
        // SAFETY: all pointers are NUL-terminated strings that outlive their call, or null where that is allowed.
        unsafe {
            if libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) != 0 {
                return 1;
            }
            let (name, flags) = (c"overlay".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV);
            if libc::mount(name, self.target.as_ptr(), name, flags, self.options.as_ptr().cast()) != 0 {
                return 2;
            }
            if libc::chdir(self.target.as_ptr()) != 0 {
                return 3;
            }
            if libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) != 0 {
                return 4;
            }
            if libc::umount2(c".".as_ptr(), libc::MNT_DETACH) != 0 {
                return 5;
            }
            if libc::chdir(c"/".as_ptr()) != 0 {
                return 6;
            }
        }
        exec_true();
        7
    }
}

/// The own user becomes root inside, which needs no privilege.
fn map_ids(child: libc::pid_t) -> io::Result<()> {
    // SAFETY: both calls only return numbers.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    std::fs::write(format!("/proc/{child}/setgroups"), "deny")?;
    std::fs::write(format!("/proc/{child}/uid_map"), format!("0 {uid} 1"))?;
    std::fs::write(format!("/proc/{child}/gid_map"), format!("0 {gid} 1"))
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [-1; 2];
    // SAFETY: `fds` has room for the two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made both for us.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

/// Returns only on failure.
fn exec_true() {
    let argv = [TRUE.as_ptr(), std::ptr::null()];
    let env = [std::ptr::null()];
    // SAFETY: both arrays end with a null pointer.
    unsafe { libc::execve(TRUE.as_ptr(), argv.as_ptr(), env.as_ptr()) };
}

fn leave(step: usize) -> ! {
    // SAFETY: `_exit` has no preconditions and does not return.
    unsafe { libc::_exit(FIRST_STATUS + step as i32) }
}

/// Waits for the child; a status that is not 0 names the step that failed.
fn wait(child: libc::pid_t) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: `status` is written by the call only.
    if unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
        return Err(io::Error::last_os_error());
    }
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
        return Ok(());
    }
    let code = libc::WEXITSTATUS(status);
    let step = usize::try_from(code - FIRST_STATUS).ok().and_then(|index| STEPS.get(index));
    Err(io::Error::other(match step {
        Some(step) => format!("the step `{step}` failed in the child"),
        None => format!("the child ended with status {code}"),
    }))
}
