//! What `/workspace` holds when the sandbox starts, and whether anybody may change it.

use super::setup::Plan;
use super::{exec, files};
use crate::error::{AtStep as _, ErrorKind, Result, RuntimeError};
use crate::identity::DEFAULT_UID;
use crate::isolation::{privileges, rootfs};
use crate::report::{Control, Enforced, Outcome as Kept};
use crate::spec::{FileOp, SandboxSpec};
use crate::sys::process::{self, Forked};
use crate::wire::Outcome;
use rustix::fs::{Mode, OFlags, open};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{WaitOptions, waitpid};
use std::io::Read as _;
use std::os::fd::OwnedFd;

/// The longest answer of the process that unpacks.
const MAX_ANSWER: u64 = 64 << 10;

/// Opens the seed while this process is still who it was outside and can reach it.
pub(super) fn open_seed(spec: &SandboxSpec) -> Result<Option<OwnedFd>> {
    let Some(path) = &spec.seed else { return Ok(None) };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fail = format!("cannot open the seed {}", path.display());
    open(path, flags, Mode::empty()).at("seed", fail).map(Some)
}

/// Unpacks the seed as the user, then takes the right to write away, before the rights to mount are dropped.
pub(super) fn prepare(plan: &Plan<'_>, seed: Option<OwnedFd>, report: &mut Enforced) -> Result<()> {
    if let Some(seed) = seed {
        unpack(plan, seed)?;
    }
    if plan.spec.workspace_read_only {
        rootfs::make_read_only(exec::DEFAULT_CWD)?;
        report.push(Control::Mounts, Kept::Enforced, format!("{} read-only", exec::DEFAULT_CWD));
    }
    Ok(())
}

/// In a process of its own, which has the user's rights: the archive is not trusted with init's.
fn unpack(plan: &Plan<'_>, seed: OwnedFd) -> Result<()> {
    let (answer, teller) = pipe_with(PipeFlags::CLOEXEC).at("seed", "cannot make a pipe")?;
    let child = match process::fork().map_err(|error| RuntimeError::io("seed", "cannot fork", &error))? {
        Forked::Child => unpack_and_leave(plan, &seed, &teller),
        Forked::Parent(child) => child,
    };
    drop(teller);
    let mut text = Vec::new();
    let read = std::fs::File::from(answer).take(MAX_ANSWER).read_to_end(&mut text);
    let waited = loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other,
        }
    };
    read.map_err(|error| RuntimeError::io("seed", "cannot read the answer", &error))?;
    waited.at("seed", "cannot wait for the seed")?;
    match serde_json::from_slice(&text) {
        Ok(Outcome::Done) => Ok(()),
        Ok(Outcome::Failed(error)) => Err(error),
        _ => Err(RuntimeError::new(ErrorKind::Io, "seed", "unpacking the seed broke off")),
    }
}

fn unpack_and_leave(plan: &Plan<'_>, seed: &OwnedFd, teller: &OwnedFd) -> ! {
    if process::move_to(seed, 0).is_err() || process::move_to(teller, 2).is_err() {
        process::leave(1);
    }
    process::close_from(3);
    rustix::process::umask(Mode::from_raw_mode(0o022));
    if plan.mapped && privileges::become_user(DEFAULT_UID, DEFAULT_UID, true).is_err() {
        process::leave(1);
    }
    let op = FileOp::TarIn { path: exec::DEFAULT_CWD.to_owned() };
    process::leave(files::run(&op, "/"))
}
