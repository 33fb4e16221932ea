//! The launch, step by step. A step that fails removes what the earlier ones made.

use super::{Init, Sandbox, teardown};
use crate::cgroup::{Cgroup, Entry, Hierarchy};
use crate::cleanup;
use crate::dirs::{self, Holder, Record};
use crate::error::{AtStep as _, ErrorKind, Result, RuntimeError};
use crate::fault;
use crate::identity::{DEFAULT_UID, HOST_ID_BASE, HOST_ID_COUNT};
use crate::init;
use crate::isolation::base::Base;
use crate::isolation::usermounts::{self, Prepared as PreparedMount};
use crate::launcher::Prepared;
use crate::mounts::{self, Blocklist};
use crate::probe::{CgroupVersion, ProbeOverrides};
use crate::report::{CleanupReport, Control, Enforced, Outcome};
use crate::spec::{SandboxSpec, unix_ms};
use crate::sys;
use crate::wire::{Conn, FromInit, LaunchRequest, LaunchedReply, MAX_INIT_FRAME, Reply, ToInit, pair};
use rustix::fs::{AtFlags, Mode, OFlags, chownat, fstat, mkdirat, openat, statat};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

/// How long init may take to set itself up; a healthy one needs milliseconds.
const SETUP_LIMIT_MS: i32 = 30_000;
/// The same with a seed, which may be large.
const SEEDED_LIMIT_MS: i32 = 600_000;

/// Launches; `None` when a living sandbox has the id already.
pub(super) fn launch(
    request: LaunchRequest,
    caller: &mut Conn,
    prepared: &Prepared,
    base: &Base,
) -> Result<Option<Sandbox>> {
    let LaunchRequest { dirs, spec, overrides } = request;
    spec.validate()?;
    check_waivers(&spec, overrides)?;
    let sources = match spec.mounts.is_empty() {
        true => Vec::new(),
        false => mounts::validate(&spec.mounts, &Blocklist::of_host(&dirs.root))?,
    };
    fault::point("runtime.launch.before_mkdir");
    let Some((dir, lock)) = claim_directory(&dirs, &spec.id)? else { return Ok(None) };
    let none = Hierarchy::none("switched off");
    let hierarchy = if overrides.no_cgroups { &none } else { &prepared.hierarchy };
    let cgroup = Cgroup::plan(hierarchy, &dirs.root, &spec.id, &spec.limits);
    let mut sandbox = Sandbox {
        dirs,
        dir,
        lock,
        cgroup,
        init: None,
        listener: None,
        enforced: Enforced::default(),
        mapped: prepared.mapped,
        started_unix_ms: unix_ms(),
        spec,
    };
    match build(&mut sandbox, caller, prepared, base, overrides, &sources) {
        Ok(()) => Ok(Some(sandbox)),
        Err(error) => {
            let mut report = CleanupReport::default();
            teardown::teardown(&mut sandbox, &mut report);
            Err(with_leftovers(error, &report))
        }
    }
}

fn with_leftovers(mut error: RuntimeError, report: &CleanupReport) -> RuntimeError {
    if let Some(left) = report.left.first() {
        error.message =
            format!("{}; and {} {} was left: {}", error.message, left.what, left.path.display(), left.reason);
    }
    error
}

/// The steps between an empty directory and a sandbox that answers.
fn build(
    sandbox: &mut Sandbox,
    caller: &mut Conn,
    prepared: &Prepared,
    base: &Base,
    overrides: ProbeOverrides,
    sources: &[PathBuf],
) -> Result<()> {
    write_record(sandbox)?;
    fault::point("runtime.launch.after_spec");
    if !sandbox.cgroup.is_joined_late() {
        make_cgroups(sandbox)?;
    }
    make_layer(sandbox)?;
    fault::point("runtime.launch.after_layer");
    let idmap = !overrides.no_idmapped_mounts;
    let mounts = usermounts::prepare(&sandbox.spec.mounts, sources, sandbox.mapped, idmap)?;
    report_mounts(&mounts, &mut sandbox.enforced);
    start_init(sandbox, caller, prepared, base, overrides, &mounts)?;
    fault::point("runtime.launch.after_clone");
    map_ids(sandbox)?;
    fault::point("runtime.launch.after_maps");
    // Init is busy with its mounts meanwhile.
    if sandbox.cgroup.is_joined_late() {
        make_cgroups(sandbox)?;
        hand_over_cgroups(sandbox)?;
    }
    sandbox.listener = Some(bind_socket(&sandbox.dir)?);
    fault::point("runtime.launch.after_socket");
    await_init(sandbox)?;
    fault::point("runtime.launch.after_ready");
    report_namespaces(sandbox, overrides);
    Ok(())
}

/// Controls that are switched off or missing for sure end the launch before anything exists.
fn check_waivers(spec: &SandboxSpec, overrides: ProbeOverrides) -> Result<()> {
    let hint = "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces";
    if overrides.no_user_namespaces {
        return Err(RuntimeError::missing("user_namespace", "switched off", hint));
    }
    if overrides.no_overlay {
        return Err(RuntimeError::missing(
            "root_filesystem",
            "overlay is switched off",
            "Linux 5.11 has it in user namespaces",
        ));
    }
    let waivable = [
        (overrides.no_network_namespaces, "network_namespace"),
        (overrides.no_ipc_namespaces, "ipc_namespace"),
        (overrides.no_uts_namespaces, "uts_namespace"),
        (overrides.no_cgroup_namespaces, "cgroup_namespace"),
        (overrides.no_landlock, "landlock"),
        (overrides.no_seccomp, "seccomp"),
    ];
    for (missing, control) in waivable {
        if missing && !spec.allow_degraded {
            return Err(RuntimeError::missing(
                control,
                "switched off",
                "`--allow-degraded` (`allow_degraded` over HTTP) starts a sandbox without it, and says so wherever it is shown",
            ));
        }
    }
    Ok(())
}

/// Only its owner gets as far as this directory. Inside, init reaches its layer through it as another user.
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o711);

fn make_private_directory(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    spread(path);
    Ok(())
}

/// Asks ext4 to put each sandbox into another part of the disk. In the same part, and without a journal, it
/// looks at every inode freed within the last minute before it takes one, which is most of a launch's time
/// on a busy host. Other file systems refuse, and need it not.
fn spread(path: &std::path::Path) {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(dir) = rustix::fs::open(path, flags, Mode::empty())
        && let Ok(flags) = ioctl_getflags(&dir)
    {
        let _ = ioctl_setflags(&dir, flags | IFlags::TOPDIR);
    }
}

/// Makes and locks the sandbox's directory. The lock says who is alive: what can be locked is dead and swept.
fn claim_directory(dirs: &dirs::RuntimeDirs, id: &str) -> Result<Option<(OwnedFd, OwnedFd)>> {
    let path = dirs.sandbox(id);
    let fail = format!("cannot make the directory of sandbox `{id}`");
    for _ in 0..16 {
        let made = match rustix::fs::mkdir(&path, DIRECTORY_MODE) {
            Err(rustix::io::Errno::NOENT) => {
                make_private_directory(&dirs.sandboxes()).at("directory", &fail)?;
                rustix::fs::mkdir(&path, DIRECTORY_MODE)
            }
            made => made,
        };
        let fresh = match made {
            Ok(()) => true,
            Err(rustix::io::Errno::EXIST) => false,
            Err(error) => return Err(error).at("directory", &fail),
        };
        fault::point("runtime.launch.after_mkdir");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let dir = match rustix::fs::open(&path, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => continue,
            opened => opened.at("directory", &fail)?,
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = match openat(&dir, dirs::LOCK, flags, Mode::RUSR | Mode::WUSR) {
            Err(rustix::io::Errno::NOENT) => continue,
            opened => opened.at("lock", &fail)?,
        };
        if !sys::lock::try_take(&lock).at("lock", &fail)? {
            return Ok(None);
        }
        fault::point("runtime.launch.after_lock");
        if !is_in_place(&path, &dir, &lock) {
            // It was swept between the two steps; what is locked is no longer what the name says.
            continue;
        }
        if !fresh && !is_empty(&dir) {
            let mut report = CleanupReport::default();
            cleanup::sweep_locked(dirs, id, &dir, &mut report);
            if let Some(left) = report.left.first() {
                let message =
                    format!("remains of an earlier sandbox `{id}` cannot be removed: {}", left.reason);
                return Err(RuntimeError::new(ErrorKind::Exists, "directory", message));
            }
            continue;
        }
        return Ok(Some((dir, lock)));
    }
    Err(RuntimeError::new(
        ErrorKind::Busy,
        "directory",
        format!("sandbox `{id}` is being launched and removed all the time"),
    ))
}

fn is_in_place(path: &std::path::Path, dir: &OwnedFd, lock: &OwnedFd) -> bool {
    let same = |a: rustix::io::Result<rustix::fs::Stat>, b: rustix::io::Result<rustix::fs::Stat>| match (a, b)
    {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    };
    same(rustix::fs::stat(path), fstat(dir))
        && same(statat(dir, dirs::LOCK, AtFlags::SYMLINK_NOFOLLOW), fstat(lock))
}

/// Whether only a lock is there in which nothing is written.
fn is_empty(dir: &OwnedFd) -> bool {
    statat(dir, dirs::LOCK, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|lock| lock.st_size == 0)
        && statat(dir, dirs::LAYER, AtFlags::SYMLINK_NOFOLLOW).is_err()
}

/// Written before anything exists outside the directory, so that a crash leaves nothing unknown.
fn write_record(sandbox: &Sandbox) -> Result<()> {
    let record = Record { spec: sandbox.spec.clone(), cgroups: sandbox.cgroup.paths() };
    dirs::append_to_lock(&sandbox.lock, &record).at("record", "cannot write the record")
}

fn make_cgroups(sandbox: &mut Sandbox) -> Result<()> {
    sandbox.cgroup.create()?;
    sandbox.cgroup.limit(&sandbox.spec.limits, &mut sandbox.enforced);
    fault::point("runtime.launch.after_cgroups");
    Ok(())
}

fn hand_over_cgroups(sandbox: &mut Sandbox) -> Result<()> {
    let Entry::V1(tasks) = sandbox.cgroup.entry()? else { return Ok(()) };
    if let Some(init) = &mut sandbox.init {
        // If init has failed already, what it has to say about it is read next.
        let _ = init.channel.send_blocking(&ToInit::Join, tasks, SETUP_LIMIT_MS);
    }
    Ok(())
}

/// The writable layer; as root it belongs to the ids inside.
fn make_layer(sandbox: &Sandbox) -> Result<()> {
    use rustix::process::{Gid, Uid};
    let fail = "cannot make the writable layer";
    for name in [dirs::LAYER, dirs::WORK] {
        mkdirat(&sandbox.dir, name, Mode::from_raw_mode(0o755)).at("layer", fail)?;
        if sandbox.mapped {
            let (uid, gid) = (Uid::from_raw(HOST_ID_BASE), Gid::from_raw(HOST_ID_BASE));
            chownat(&sandbox.dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).at("layer", fail)?;
        }
    }
    Ok(())
}

fn report_mounts(mounts: &[PreparedMount], report: &mut Enforced) {
    for mount in mounts {
        let access = if mount.read_only { "read-only" } else { "writable" };
        let target = mount.target.display();
        match &mount.unmapped {
            None => report.push(Control::Mounts, Outcome::Enforced, format!("{target} {access}")),
            Some(reason) => report.push(
                Control::Mounts,
                Outcome::Degraded,
                format!("{target} {access}; owners not mapped: {reason}"),
            ),
        }
    }
}

/// Clones init into its namespaces.
fn start_init(
    sandbox: &mut Sandbox,
    caller: &Conn,
    prepared: &Prepared,
    base: &Base,
    overrides: ProbeOverrides,
    mounts: &[PreparedMount],
) -> Result<()> {
    let (ours, theirs) = pair().at("channel", "cannot make the channel to init")?;
    let entry = if sandbox.cgroup.is_joined_late() { Entry::None } else { sandbox.cgroup.entry()? };
    let into = match &entry {
        Entry::V2(cgroup) => Some(std::os::fd::AsFd::as_fd(cgroup)),
        Entry::V1(_) | Entry::None => None,
    };
    let filters = match (&prepared.filters, overrides.no_seccomp) {
        (Ok(filters), false) => Some(filters),
        (Err(error), false) if !sandbox.spec.allow_degraded => return Err(error.clone()),
        _ => None,
    };
    let dir = sandbox.dirs.sandbox(&sandbox.spec.id);
    match sys::process::clone_into(namespaces(overrides), into).map_err(|error| clone_failed(&error))? {
        Some((pid, pidfd)) => {
            sandbox.init = Some(Init { pid, pidfd, channel: Conn::new(ours, MAX_INIT_FRAME) });
            Ok(())
        }
        None => {
            // Held open here, the lock would outlive the supervisor.
            for fd in
                [sandbox.lock.as_raw_fd(), sandbox.dir.as_raw_fd(), caller.fd.as_raw_fd(), ours.as_raw_fd()]
            {
                sys::process::close(fd);
            }
            let plan = init::setup::Plan {
                spec: &sandbox.spec,
                base,
                dir: &dir,
                mapped: sandbox.mapped,
                joins_cgroups: sandbox.cgroup.is_joined_late(),
                mounts,
                overrides,
                filters,
                limit_pids_by_user: prepared.hierarchy.version == CgroupVersion::None || overrides.no_cgroups,
            };
            init::run(&plan, theirs)
        }
    }
}

fn namespaces(overrides: ProbeOverrides) -> libc::c_int {
    let mut flags = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID;
    let optional = [
        (overrides.no_network_namespaces, libc::CLONE_NEWNET),
        (overrides.no_ipc_namespaces, libc::CLONE_NEWIPC),
        (overrides.no_uts_namespaces, libc::CLONE_NEWUTS),
    ];
    for (missing, flag) in optional {
        if !missing {
            flags |= flag;
        }
    }
    flags
}

fn clone_failed(error: &std::io::Error) -> RuntimeError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EINVAL | libc::ENOSYS | libc::ENOSPC | libc::EUSERS) => {
            RuntimeError::missing(
                "user_namespace",
                error.to_string(),
                "allow them: kernel.unprivileged_userns_clone=1, user.max_user_namespaces, or the AppArmor restriction on them",
            )
        }
        _ => RuntimeError::io("clone", "cannot start init", error),
    }
}

/// Says which ids inside are which outside, and lets init go on.
fn map_ids(sandbox: &mut Sandbox) -> Result<()> {
    let Some(init) = &sandbox.init else { return Err(RuntimeError::protocol("there is no init")) };
    let process = format!("/proc/{}", init.pid.as_raw_nonzero());
    let write = |file: &str, text: String| {
        std::fs::write(format!("{process}/{file}"), text).at("uid_map", format!("cannot write {file}"))
    };
    if sandbox.mapped {
        let map = format!("0 {HOST_ID_BASE} {HOST_ID_COUNT}");
        write("uid_map", map.clone())?;
        write("gid_map", map)?;
        let detail =
            format!("0-65535 inside are {HOST_ID_BASE}-{} outside", HOST_ID_BASE + HOST_ID_COUNT - 1);
        sandbox.enforced.push(Control::UidMapping, Outcome::Enforced, detail);
    } else {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        // The kernel lets an ordinary user map groups only when nobody inside can drop one.
        write("setgroups", "deny".to_owned())?;
        write("uid_map", format!("{DEFAULT_UID} {} 1", uid.as_raw()))?;
        write("gid_map", format!("{DEFAULT_UID} {} 1", gid.as_raw()))?;
        let detail = format!("the single user {DEFAULT_UID} inside is {} outside", uid.as_raw());
        sandbox.enforced.push(Control::UidMapping, Outcome::Enforced, detail);
    }
    // If init has failed already, what it has to say about it is read next.
    let _ = rustix::io::write(&init.channel.fd, b"g");
    Ok(())
}

/// Binds the control socket through the directory's descriptor, so that the length of its path does not matter.
fn bind_socket(dir: &OwnedFd) -> Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
    let fail = "cannot bind the control socket";
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).at("socket", fail)?;
    let path = format!("/proc/self/fd/{}/{}", dir.as_raw_fd(), dirs::SOCKET);
    let address = SocketAddrUnix::new(path.as_str()).at("socket", fail)?;
    bind(&socket, &address).at("socket", fail)?;
    listen(&socket, 1024).at("socket", fail)?;
    Ok(socket)
}

/// Waits until init has locked itself in. What it says is bounded, and its failures are ours.
fn await_init(sandbox: &mut Sandbox) -> Result<()> {
    let Some(init) = &mut sandbox.init else { return Err(RuntimeError::protocol("there is no init")) };
    let limit = if sandbox.spec.seed.is_some() { SEEDED_LIMIT_MS } else { SETUP_LIMIT_MS };
    let frame = init.channel.receive_blocking(limit).at("setup", "init was not ready in time")?;
    let frame = frame
        .ok_or_else(|| RuntimeError::new(ErrorKind::Protocol, "setup", "init ended during its setup"))?;
    match frame.parse().at("setup", "init is not understood")? {
        FromInit::Ready { enforced } => {
            sandbox.enforced.controls.extend(enforced.controls);
            Ok(())
        }
        FromInit::SetupFailed(error) => Err(error),
        _ => Err(RuntimeError::protocol("init said something else than that it is ready")),
    }
}

fn report_namespaces(sandbox: &mut Sandbox, overrides: ProbeOverrides) {
    let made = [
        (false, Control::UserNamespace),
        (false, Control::MountNamespace),
        (false, Control::PidNamespace),
        (overrides.no_network_namespaces, Control::NetworkNamespace),
        (overrides.no_uts_namespaces, Control::UtsNamespace),
    ];
    for (missing, control) in made {
        if !missing {
            sandbox.enforced.push(control, Outcome::Enforced, "own namespace");
        }
    }
    match overrides.no_ipc_namespaces {
        true => sandbox.enforced.push(Control::IpcNamespace, Outcome::Missing, "switched off"),
        false => sandbox.enforced.push(Control::IpcNamespace, Outcome::Enforced, "own namespace"),
    }
    sandbox.enforced.controls.sort_by_key(|control| control.control);
}

/// Who to end when this process no longer answers.
pub(super) fn write_holder(sandbox: &Sandbox) {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let init = sandbox.init.as_ref().map_or(0, |init| init.pid.as_raw_nonzero().get());
    let holder = Holder {
        supervisor: own,
        supervisor_start: sys::process::start_time(own).unwrap_or(0),
        init,
        init_start: sys::process::start_time(init).unwrap_or(0),
    };
    let _ = dirs::append_to_lock(&sandbox.lock, &holder);
}

pub(super) fn launched(sandbox: &Sandbox) -> Reply {
    Reply::Launched(Box::new(LaunchedReply {
        supervisor_pid: rustix::process::getpid().as_raw_nonzero().get(),
        init_pid: sandbox.init.as_ref().map_or(0, |init| init.pid.as_raw_nonzero().get()),
        started_unix_ms: sandbox.started_unix_ms,
        enforced: sandbox.enforced.clone(),
    }))
}
