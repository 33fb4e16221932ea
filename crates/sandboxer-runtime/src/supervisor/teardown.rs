//! The end of a sandbox: processes, cgroups, files, in this order, and a report of what would not go.

use super::Sandbox;
use crate::cleanup;
use crate::fault;
use crate::report::CleanupReport;
use crate::sys;

/// How long the kernel may take to end every process inside.
const KILL_LIMIT_MS: i64 = 10_000;

pub(super) fn teardown(sandbox: &mut Sandbox, report: &mut CleanupReport) {
    fault::point("runtime.stop.before_kill");
    if let Some(init) = sandbox.init.take() {
        // Init is PID 1 of its namespace: when it is gone, so is everything inside, and its mounts.
        let pid = init.pid.as_raw_nonzero();
        match sys::process::kill_and_wait(&init.pidfd, KILL_LIMIT_MS) {
            true => report.removed.push(format!("process {pid} and everything inside")),
            false => report.leave("process", format!("/proc/{pid}"), "it does not die"),
        }
        let _ = rustix::process::waitpid(Some(init.pid), rustix::process::WaitOptions::NOHANG);
    }
    fault::point("runtime.stop.after_kill");
    sandbox.cgroup.remove(report);
    fault::point("runtime.stop.after_cgroups");
    cleanup::remove_directory(&sandbox.dirs, &sandbox.spec.id, &sandbox.dir, report);
    fault::point("runtime.stop.after_remove");
}
