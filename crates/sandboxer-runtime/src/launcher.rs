//! The launcher: single-threaded and small, so that forking a supervisor from it is fast and safe. It
//! knows everything that is the same for every launch.

use crate::cgroup::Hierarchy;
use crate::dirs::RuntimeDirs;
use crate::error::{Result, RuntimeError};
use crate::fault;
use crate::identity;
use crate::isolation::base::{self, Base};
use crate::isolation::seccomp::{self, Filters};
use crate::probing;
use crate::supervisor;
use crate::sys::process::{self, Forked};
use crate::sys::signal;
use crate::wire::{Conn, Frame, LaunchRequest, LauncherRequest, MAX_FRAME, Reply};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// What every launch needs and no launch should have to find out.
pub(crate) struct Prepared {
    pub(crate) hierarchy: Hierarchy,
    pub(crate) filters: Result<Filters>,
    /// Whether sandboxes get a range of ids of their own.
    pub(crate) mapped: bool,
    bases: HashMap<PathBuf, Base>,
}

impl Prepared {
    fn new() -> Self {
        Self {
            hierarchy: Hierarchy::discover(),
            filters: seccomp::compile(),
            mapped: identity::has_range(),
            bases: HashMap::new(),
        }
    }

    fn base(&mut self, dirs: &RuntimeDirs) -> Result<Base> {
        if let Some(base) = self.bases.get(&dirs.root)
            && base.is_complete()
        {
            return Ok(base.clone());
        }
        let base = base::prepare(dirs, self.mapped)?;
        self.bases.insert(dirs.root.clone(), base.clone());
        Ok(base)
    }
}

/// Serves requests from stdin until the caller closes it.
pub(crate) fn run() -> ! {
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"sbx-launcher");
    signal::reset();
    signal::set_child_reaping(true);
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let mut conn = Conn::new(process::adopt(0), MAX_FRAME);
    let mut prepared = Prepared::new();
    while let Ok(Some(frame)) = conn.receive_blocking(-1) {
        handle(frame, &mut prepared);
    }
    process::leave(0);
}

fn handle(mut frame: Frame, prepared: &mut Prepared) {
    let Some(reply) = frame.fds.pop() else { return };
    match frame.parse() {
        Ok(LauncherRequest::Launch(request)) => launch(*request, reply, prepared),
        Ok(LauncherRequest::Probe { dirs, overrides }) => {
            let probe = probing::run(prepared, &dirs, overrides);
            answer(reply, &Reply::Probed(Box::new(probe)));
        }
        Err(error) => {
            answer(reply, &Reply::Failed(RuntimeError::protocol(format!("unreadable request: {error}"))))
        }
    }
}

fn answer(socket: OwnedFd, reply: &Reply) {
    let _ = Conn::new(socket, MAX_FRAME).send_blocking(reply, Vec::new(), 1000);
}

fn launch(request: LaunchRequest, reply: OwnedFd, prepared: &mut Prepared) {
    let base = match prepared.base(&request.dirs) {
        Ok(base) => base,
        Err(error) => return answer(reply, &Reply::Failed(error)),
    };
    fault::point("runtime.launcher.before_fork");
    match process::fork() {
        Ok(Forked::Parent(_)) => {}
        Ok(Forked::Child) => {
            signal::set_child_reaping(false);
            // The launcher's socket: as long as a copy is open, the caller would not see the launcher end.
            process::replace_with_null(0);
            supervisor::run(request, reply, prepared, &base)
        }
        Err(error) => {
            answer(reply, &Reply::Failed(RuntimeError::io("fork", "cannot fork a supervisor", &error)))
        }
    }
}
