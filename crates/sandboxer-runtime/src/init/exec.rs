//! Starting one exec: a monitor that adopts whatever its command leaves behind, and the command itself.

use super::passwd::{self, User};
use super::{files, fork_failed};
use crate::error::{AtStep as _, Result, RuntimeError};
use crate::isolation::privileges;
use crate::spec::{ExecSpec, Tty};
use crate::sys::process::{self, Forked};
use crate::sys::signal;
use crate::wire::{ExecRequest, Program};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{DumpableBehavior, Pid, WaitOptions, set_dumpable_behavior};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::OwnedFd;

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
pub(super) const DEFAULT_CWD: &str = "/workspace";
/// Commands are what the kernel should end first when memory is short, not init.
const OOM_SCORE: &[u8] = b"500";

/// Everything decided before the fork.
pub(super) struct Prepared {
    user: User,
    mapped: bool,
    streams: [OwnedFd; 3],
    has_terminal: bool,
    /// Handed to the caller once the command runs.
    pub(super) terminal: Option<OwnedFd>,
    action: Action,
}

enum Action {
    Command { argv: Vec<CString>, env: Vec<CString>, path: String, cwd: CString },
    File(crate::spec::FileOp, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordKind {
    Started,
    Exited,
    Signaled,
}

/// What a monitor tells init; small enough that the pipe keeps each whole.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) number: u64,
    pub(super) kind: RecordKind,
    pub(super) value: i32,
}

impl Record {
    pub(super) const SIZE: usize = 16;

    fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..12].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes[12..].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let kind = match u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?) {
            0 => RecordKind::Started,
            1 => RecordKind::Exited,
            2 => RecordKind::Signaled,
            _ => return None,
        };
        let number = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
        Some(Self { number, kind, value: i32::from_le_bytes(bytes.get(12..16)?.try_into().ok()?) })
    }
}

pub(super) fn prepare(request: &ExecRequest, fds: Vec<OwnedFd>, mapped: bool) -> Result<Prepared> {
    let spec = &request.spec;
    let user = passwd::resolve(spec.user.as_deref(), mapped)?;
    let (streams, terminal) = match spec.tty {
        Some(tty) => {
            let (master, slave) = open_terminal(tty, &user, mapped)?;
            let duplicate = || slave.try_clone().at("terminal", "cannot duplicate the terminal");
            ([duplicate()?, duplicate()?, slave], Some(master))
        }
        None => (streams(request.streams, fds)?, None),
    };
    let cwd = spec.cwd.clone().unwrap_or_else(|| DEFAULT_CWD.to_owned());
    let action = match &request.program {
        Program::File(op) => Action::File(op.clone(), cwd),
        Program::Command => command(spec, &user, cwd)?,
    };
    Ok(Prepared { user, mapped, streams, has_terminal: terminal.is_some(), terminal, action })
}

fn command(spec: &ExecSpec, user: &User, cwd: String) -> Result<Action> {
    spec.validate()?;
    let env = environment(spec, user);
    let path = env.get("PATH").cloned().unwrap_or_default();
    let c_string =
        |text: String| CString::new(text).map_err(|_| RuntimeError::invalid("a NUL byte in the command"));
    Ok(Action::Command {
        argv: spec.argv.iter().cloned().map(c_string).collect::<Result<_>>()?,
        env: env
            .into_iter()
            .map(|(name, value)| c_string(format!("{name}={value}")))
            .collect::<Result<_>>()?,
        path,
        cwd: c_string(cwd)?,
    })
}

fn environment(spec: &ExecSpec, user: &User) -> BTreeMap<String, String> {
    let own = [
        ("PATH", DEFAULT_PATH),
        ("HOME", &user.home),
        ("USER", &user.name),
        ("LOGNAME", &user.name),
        ("SHELL", "/bin/bash"),
        ("LANG", "C.UTF-8"),
    ];
    let mut env: BTreeMap<String, String> =
        own.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    if spec.tty.is_some() {
        env.insert("TERM".to_owned(), "xterm-256color".to_owned());
    }
    env.extend(spec.env.clone());
    env
}

/// The descriptors that came with the request, and `/dev/null` for the rest.
fn streams(present: [bool; 3], fds: Vec<OwnedFd>) -> Result<[OwnedFd; 3]> {
    let mut fds = fds.into_iter();
    let mut next = |wanted: bool| match wanted.then(|| fds.next()).flatten() {
        Some(fd) => Ok(fd),
        None => open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .at("exec", "cannot open /dev/null"),
    };
    Ok([next(present[0])?, next(present[1])?, next(present[2])?])
}

/// A new terminal that belongs to the exec's user.
fn open_terminal(tty: Tty, user: &User, mapped: bool) -> Result<(OwnedFd, OwnedFd)> {
    if mapped {
        process::set_fs_ids(user.uid, user.gid);
    }
    let opened = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
    if mapped {
        process::set_fs_ids(0, 0);
    }
    let fail = "cannot open a terminal";
    let master = opened.at("terminal", fail)?;
    unlockpt(&master).at("terminal", fail)?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let slave = ioctl_tiocgptpeer(&master, flags).at("terminal", fail)?;
    let size = Winsize { ws_row: tty.rows, ws_col: tty.cols, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&slave, size).at("terminal", fail)?;
    Ok((master, slave))
}

/// Forks the monitor, which forks the command.
pub(super) fn spawn(number: u64, prepared: &Prepared, records: &OwnedFd) -> Result<Pid> {
    match process::fork().map_err(|error| fork_failed(&error))? {
        Forked::Parent(monitor) => Ok(monitor),
        Forked::Child => monitor(number, prepared, records),
    }
}

/// The monitor: adopts what its command double-forks, reports, and leaves when the command has ended.
fn monitor(number: u64, prepared: &Prepared, records: &OwnedFd) -> ! {
    let report = |kind, value| {
        let _ = rustix::io::write(records, &Record { number, kind, value }.encode());
    };
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let command = match fork_command(prepared) {
        Ok(command) => command,
        Err(error) => {
            let message = format!("sandboxer: {}\n", fork_failed(&error));
            let _ = rustix::io::write(&prepared.streams[2], message.as_bytes());
            report(RecordKind::Started, rustix::process::getpid().as_raw_nonzero().get());
            report(RecordKind::Exited, 126);
            process::leave(126);
        }
    };
    report(RecordKind::Started, command.as_raw_nonzero().get());
    let _ = rustix::thread::set_name(c"sbx-exec");
    // The command's streams must end with the command: keep the record pipe and nothing else.
    if process::move_to(records, 0).is_ok() {
        process::close_from(1);
    }
    let records = process::adopt(0);
    let report = |kind, value| {
        let _ = rustix::io::write(&records, &Record { number, kind, value }.encode());
    };
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == command => {
                if let Some(signal) = status.terminating_signal() {
                    report(RecordKind::Signaled, signal);
                    process::leave(128 + signal);
                }
                let code = status.exit_status().unwrap_or(1);
                report(RecordKind::Exited, code);
                process::leave(code);
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => process::leave(1),
        }
    }
}

/// A program replaces the memory at once, so it need not be copied; a file operation goes on using it.
fn fork_command(prepared: &Prepared) -> std::io::Result<Pid> {
    if matches!(prepared.action, Action::Command { .. }) {
        return process::fork_sharing(|| run_command(prepared));
    }
    match process::fork()? {
        Forked::Child => run_command(prepared),
        Forked::Parent(command) => Ok(command),
    }
}

/// The command: from here on everything only becomes less.
fn run_command(prepared: &Prepared) -> ! {
    let _ = rustix::process::setsid();
    for (number, stream) in (0..).zip(&prepared.streams) {
        if process::move_to(stream, number).is_err() {
            process::leave(126);
        }
    }
    if prepared.has_terminal {
        let _ = rustix::process::ioctl_tiocsctty(rustix::stdio::stdin());
    }
    process::close_from(3);
    signal::reset_changed();
    raise_oom_score();
    if let Err(error) = become_user(prepared) {
        fail(126, &error.to_string());
    }
    match &prepared.action {
        Action::File(op, cwd) => process::leave(files::run(op, cwd)),
        Action::Command { argv, env, path, cwd } => {
            if let Err(error) = rustix::process::chdir(cwd.as_c_str()) {
                fail(
                    126,
                    &format!("cannot change to {}: {}", cwd.to_string_lossy(), std::io::Error::from(error)),
                );
            }
            exec(argv, env, path)
        }
    }
}

/// A process that cannot be looked into has its entries in `/proc` owned by root, so it is made visible
/// for this one write. It holds nothing of init's any more.
fn raise_oom_score() {
    let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(file) = open("/proc/self/oom_score_adj", flags, Mode::empty()) {
        let _ = rustix::io::write(file, OOM_SCORE);
    }
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

fn become_user(prepared: &Prepared) -> Result<()> {
    if !prepared.mapped {
        return Ok(());
    }
    privileges::drop_last_capabilities()?;
    privileges::become_user(prepared.user.uid, prepared.user.gid, true)?;
    privileges::clear_to(rustix::thread::CapabilitySet::empty())
}

/// Replaces the process as a shell would: 127 when nothing is found, 126 when it cannot be executed.
fn exec(argv: &[CString], env: &[CString], path: &str) -> ! {
    let name = argv[0].to_string_lossy().into_owned();
    let candidates: Vec<String> = match name.contains('/') {
        true => vec![name.clone()],
        false => path
            .split(':')
            .map(|dir| if dir.is_empty() { format!("./{name}") } else { format!("{dir}/{name}") })
            .collect(),
    };
    let mut denied: Option<std::io::Error> = None;
    for candidate in candidates {
        let Ok(candidate) = CString::new(candidate) else { continue };
        let error = process::exec(&candidate, argv, env);
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => {}
            // A script without its first line is run by the shell, as everywhere.
            Some(libc::ENOEXEC) => {
                let mut shell = vec![c"sh".to_owned(), candidate];
                shell.extend_from_slice(&argv[1..]);
                denied = Some(process::exec(&c"/bin/sh".to_owned(), &shell, env));
            }
            _ => denied = Some(error),
        }
    }
    match denied {
        Some(error) => fail(126, &format!("{name}: {error}")),
        None if name.contains('/') => fail(127, &format!("{name}: no such file or directory")),
        None => fail(127, &format!("{name}: command not found")),
    }
}

/// Says why on the command's own stderr.
fn fail(code: i32, message: &str) -> ! {
    let _ = rustix::io::write(rustix::stdio::stderr(), format!("sandboxer: {message}\n").as_bytes());
    process::leave(code)
}
