//! How init sets the sandbox up: an ordered script, one step a line.

use super::workspace;
use crate::error::{AtStep as _, ErrorKind, Result, RuntimeError};
use crate::fault;
use crate::isolation::base::Base;
use crate::isolation::seccomp::Filters;
use crate::isolation::usermounts::{self, Prepared};
use crate::isolation::{landlock, privileges, rootfs, seccomp};
use crate::probe::ProbeOverrides;
use crate::report::{Control, Enforced, Outcome};
use crate::spec::SandboxSpec;
use crate::sys;
use crate::wire::Conn;
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal, setrlimit};
use std::path::Path;

const MAX_OPEN_FILES: u64 = 65_536;

/// What the supervisor decided; init reads it from the memory it was cloned with.
pub(crate) struct Plan<'a> {
    pub(crate) spec: &'a SandboxSpec,
    pub(crate) base: &'a Base,
    /// The sandbox's directory.
    pub(crate) dir: &'a Path,
    /// Whether a range of ids is mapped; else the caller's own id is all there is.
    pub(crate) mapped: bool,
    /// Whether the cgroups come over the channel.
    pub(crate) joins_cgroups: bool,
    pub(crate) mounts: &'a [Prepared],
    pub(crate) overrides: ProbeOverrides,
    pub(crate) filters: Option<&'a Filters>,
    /// Without a pids cgroup, a limit by user is better than none.
    pub(crate) limit_pids_by_user: bool,
}

pub(super) fn run(plan: &Plan<'_>, channel: &mut Conn) -> Result<Enforced> {
    let mut report = Enforced::default();
    let _ = rustix::thread::set_name(super::NAME);
    die_with_supervisor()?;
    let layers = rootfs::open_layers(plan.base, plan.spec)?;
    let seed = workspace::open_seed(plan.spec)?;
    wait_for_maps(channel)?;
    rustix::process::chdir(plan.dir).at("layers", "cannot enter the sandbox's directory")?;
    fault::point("runtime.init.before_mounts");
    if plan.mapped {
        privileges::become_user(0, 0, true)?;
    }
    share_less_with_root();
    rootfs::make_private()?;
    rootfs::mount_overlay(&layers)?;
    rootfs::bind_system(plan.base)?;
    fault::point("runtime.init.after_overlay");
    rootfs::mount_proc()?;
    rootfs::mount_devices()?;
    rootfs::mount_tmpfs(plan.spec)?;
    for mount in plan.mounts {
        usermounts::attach(mount)?;
    }
    rootfs::pivot()?;
    drop(layers);
    fault::point("runtime.init.after_pivot");
    report.push(
        Control::RootFilesystem,
        Outcome::Enforced,
        "overlay, pivot_root, private /proc, minimal /dev",
    );
    join_cgroups(plan, channel)?;
    workspace::prepare(plan, seed, &mut report)?;
    own_cgroup_view(plan, &mut report)?;
    name_host(plan, &mut report)?;
    loopback(plan, &mut report)?;
    limit_resources(plan, &mut report)?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    fault::point("runtime.init.before_lockdown");
    lock_down(plan, &mut report)?;
    // Changing users has cleared it, and the supervisor may have died since.
    die_with_supervisor()?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .at("dumpable", "cannot hide init")?;
    report.push(Control::NotDumpable, Outcome::Enforced, "init is not dumpable");
    Ok(report)
}

/// Watches and the like are counted for the user who made the namespace, root included, across all its sandboxes. A
/// bound of its own keeps one sandbox from taking everybody's; without it there is still the kernel's.
fn share_less_with_root() {
    for (setting, most) in [("max_inotify_instances", "48"), ("max_inotify_watches", "65536")] {
        let _ = std::fs::write(format!("/proc/sys/user/{setting}"), most);
    }
}

/// A supervisor killed with -9 takes its sandbox along; the closed channel is the second way.
fn die_with_supervisor() -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .at("pdeathsig", "cannot follow the supervisor")
}

/// On v1 the supervisor makes the cgroups while the mounts are made, and hands them over here. Writing
/// `0` to `tasks` moves the writer alone and, unlike a process id, takes no lock of the whole system.
fn join_cgroups(plan: &Plan<'_>, channel: &mut Conn) -> Result<()> {
    if !plan.joins_cgroups {
        return Ok(());
    }
    let gone = || RuntimeError::new(ErrorKind::Protocol, "cgroup", "the supervisor has gone");
    let frame = channel.receive_blocking(-1).at("cgroup", "cannot wait for the cgroups")?.ok_or_else(gone)?;
    for tasks in frame.fds {
        rustix::io::write(tasks, b"0").at("cgroup", "cannot join a cgroup")?;
    }
    Ok(())
}

fn own_cgroup_view(plan: &Plan<'_>, report: &mut Enforced) -> Result<()> {
    let control = Control::CgroupNamespace;
    if plan.overrides.no_cgroup_namespaces {
        return waive(
            plan,
            report,
            control,
            RuntimeError::missing("cgroup_namespace", "switched off", "Linux 4.6 has them"),
        );
    }
    match sys::process::unshare_cgroups() {
        Ok(()) => report.push(control, Outcome::Enforced, "own view of the cgroups"),
        Err(error) => {
            let missing = RuntimeError::missing(
                "cgroup_namespace",
                error.to_string(),
                "the kernel needs CONFIG_CGROUPS",
            );
            waive(plan, report, control, missing)?;
        }
    }
    Ok(())
}

/// A missing control is fatal unless the spec allows to go on without it.
fn waive(plan: &Plan<'_>, report: &mut Enforced, control: Control, missing: RuntimeError) -> Result<()> {
    if !plan.spec.allow_degraded {
        return Err(missing);
    }
    report.push(control, Outcome::Missing, missing.message);
    Ok(())
}

/// The supervisor writes the id maps from outside and says so with one byte.
fn wait_for_maps(channel: &Conn) -> Result<()> {
    let mut go = [0_u8; 1];
    loop {
        match rustix::io::read(&channel.fd, &mut go) {
            Ok(1) => return Ok(()),
            Ok(_) => {
                return Err(RuntimeError::new(ErrorKind::Protocol, "uid_map", "the supervisor has gone"));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).at("uid_map", "cannot wait for the supervisor"),
        }
    }
}

fn name_host(plan: &Plan<'_>, report: &mut Enforced) -> Result<()> {
    if plan.overrides.no_uts_namespaces {
        let missing =
            RuntimeError::missing("uts_namespace", "switched off", "the kernel needs CONFIG_UTS_NS");
        return waive(plan, report, Control::UtsNamespace, missing);
    }
    let name = plan.spec.hostname.as_deref().unwrap_or("sandbox");
    rustix::system::sethostname(name.as_bytes()).at("hostname", "cannot set the host name")
}

fn loopback(plan: &Plan<'_>, report: &mut Enforced) -> Result<()> {
    if plan.overrides.no_network_namespaces {
        let missing =
            RuntimeError::missing("network_namespace", "switched off", "the kernel needs CONFIG_NET_NS");
        return waive(plan, report, Control::NetworkNamespace, missing);
    }
    sys::mount::loopback_up().at("loopback", "cannot switch the loopback on")
}

fn limit_resources(plan: &Plan<'_>, report: &mut Enforced) -> Result<()> {
    let set = |resource, value: u64| {
        let maximum = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX).min(value);
        setrlimit(resource, Rlimit { current: Some(maximum), maximum: Some(maximum) })
            .at("rlimits", "cannot set a limit")
    };
    set(Resource::Core, 0)?;
    report.push(Control::CoreDumps, Outcome::Enforced, "RLIMIT_CORE 0");
    set(Resource::Nofile, MAX_OPEN_FILES)?;
    if plan.limit_pids_by_user
        && let Some(pids) = plan.spec.limits.pids
    {
        set(Resource::Nproc, u64::from(pids))?;
        report.push(
            Control::PidsLimit,
            Outcome::Degraded,
            format!("RLIMIT_NPROC {pids}: counts all processes of the user"),
        );
    }
    if let Some(mb) = plan.spec.limits.disk_mb {
        set(Resource::Fsize, mb << 20)?;
        let detail = format!(
            "{mb} MiB for a single file by RLIMIT_FSIZE; the total is not limited: no quota on this file system"
        );
        report.push(Control::DiskLimit, Outcome::Degraded, detail);
    }
    Ok(())
}

/// The last steps; each takes away what the earlier ones needed.
fn lock_down(plan: &Plan<'_>, report: &mut Enforced) -> Result<()> {
    rustix::thread::set_no_new_privs(true).at("no_new_privs", "cannot set no_new_privs")?;
    report.push(Control::NoNewPrivs, Outcome::Enforced, "set in init, inherited by all");
    let restricted = match plan.overrides.no_landlock {
        true => {
            Err(RuntimeError::missing("landlock", "switched off", "Linux 5.13 has it, with lsm=landlock"))
        }
        false => landlock::restrict(),
    };
    match restricted {
        Ok(detail) => report.push(Control::Landlock, Outcome::Enforced, detail),
        Err(missing) => waive(plan, report, Control::Landlock, missing)?,
    }
    privileges::lock_secure_bits()?;
    let keep = if plan.mapped { privileges::INIT_CAPS } else { rustix::thread::CapabilitySet::empty() };
    privileges::drop_capabilities(keep)?;
    report.push(Control::Capabilities, Outcome::Enforced, "none in commands, in any set; secure bits locked");
    let filtered = match plan.filters {
        Some(filters) => seccomp::install(filters),
        None => {
            Err(RuntimeError::missing("seccomp", "switched off", "the kernel needs CONFIG_SECCOMP_FILTER"))
        }
    };
    match filtered {
        Ok(detail) => report.push(Control::Seccomp, Outcome::Enforced, detail),
        Err(missing) => waive(plan, report, Control::Seccomp, missing)?,
    }
    Ok(())
}
