//! The supervisor of one sandbox, outside of it. It holds the lock, the deadline, the cgroups and the
//! control socket, and it removes everything before it ends.

mod adopt;
mod background;
mod execs;
mod launch;
mod requests;
mod serve;
mod teardown;
mod verify;

use crate::cgroup::Cgroup;
use crate::dirs::{self, RuntimeDirs};
use crate::isolation::base::Base;
use crate::launcher::Prepared;
use crate::report::Enforced;
use crate::spec::SandboxSpec;
use crate::sys::process;
use crate::wire::{Conn, LaunchRequest, MAX_FRAME, Reply};
use rustix::process::Pid;
use std::os::fd::OwnedFd;

/// A sandbox from outside: what exists of it so far, so that a failed launch removes just that.
pub(crate) struct Sandbox {
    dirs: RuntimeDirs,
    spec: SandboxSpec,
    dir: OwnedFd,
    lock: OwnedFd,
    cgroup: Cgroup,
    init: Option<Init>,
    /// The control socket, once it is bound.
    listener: Option<OwnedFd>,
    enforced: Enforced,
    mapped: bool,
    started_unix_ms: u64,
}

struct Init {
    pid: Pid,
    pidfd: OwnedFd,
    channel: Conn,
}

/// The supervisor's whole life. Never returns.
pub(crate) fn run(request: LaunchRequest, reply: OwnedFd, prepared: &Prepared, base: &Base) -> ! {
    let _ = rustix::process::setsid();
    name(&request.spec.id);
    let mut caller = Conn::new(reply, MAX_FRAME);
    match launch::launch(request, &mut caller, prepared, base) {
        Ok(Some(sandbox)) => serve::serve(sandbox, caller),
        Ok(None) => {
            let _ = caller.send_blocking(&Reply::Existing, Vec::new(), 1000);
        }
        Err(error) => {
            let _ = caller.send_blocking(&Reply::Failed(error), Vec::new(), 1000);
        }
    }
    process::leave(0);
}

fn name(id: &str) {
    let name = format!("sbx-sup:{}", dirs::short_id(id));
    if let Ok(name) = std::ffi::CString::new(name) {
        let _ = rustix::thread::set_name(&name);
    }
}
