//! Finds out what the kernel offers, by trying it in short-lived children of the launcher.

use crate::dirs::RuntimeDirs;
use crate::identity::{self, DEFAULT_UID, HOST_ID_BASE, HOST_ID_COUNT};
use crate::isolation::landlock;
use crate::launcher::Prepared;
use crate::probe::{CgroupVersion, Cgroups, Feature, Probe, ProbeOverrides};
use crate::sys;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{PidfdFlags, WaitOptions};
use std::path::Path;

const OFF: &str = "switched off";

pub(crate) fn run(prepared: &Prepared, dirs: &RuntimeDirs, overrides: ProbeOverrides) -> Probe {
    // Children are waited for here; the launcher itself lets the kernel reap.
    sys::signal::set_child_reaping(false);
    let user = namespace(0, "user", overrides.no_user_namespaces);
    let also = |flag, name, off| if user.is_available() { namespace(flag, name, off) } else { user.clone() };
    let abi = if overrides.no_landlock { 0 } else { landlock::abi() };
    let probe = Probe {
        mount_namespaces: also(libc::CLONE_NEWNS, "mount", false),
        pid_namespaces: also(libc::CLONE_NEWPID, "pid", false),
        network_namespaces: also(libc::CLONE_NEWNET, "network", overrides.no_network_namespaces),
        ipc_namespaces: also(libc::CLONE_NEWIPC, "ipc", overrides.no_ipc_namespaces),
        uts_namespaces: also(libc::CLONE_NEWUTS, "uts", overrides.no_uts_namespaces),
        cgroup_namespaces: also(libc::CLONE_NEWCGROUP, "cgroup", overrides.no_cgroup_namespaces),
        overlay_userxattr: overlay(dirs, overrides.no_overlay || overrides.no_user_namespaces),
        landlock: landlock_feature(abi),
        landlock_abi: abi,
        seccomp: seccomp(prepared, overrides.no_seccomp),
        cgroups: cgroups(prepared, overrides.no_cgroups),
        uid_range: uid_range(),
        idmapped_mounts: idmapped(overrides.no_idmapped_mounts),
        disk_quota: Feature::missing(
            "a quota for a sandbox's directory is not set up on this file system",
            "a single file is limited by RLIMIT_FSIZE; keep the state directory on a file system of its own",
        ),
        pidfd: pidfd(),
        clone3: Feature::available("used for every launch"),
        user_namespaces: user,
    };
    sys::signal::set_child_reaping(true);
    probe
}

/// Makes a child in the namespace and lets it run `work`; `Err` is the errno of either.
fn try_in_child(
    flags: libc::c_int,
    work: impl FnOnce() -> rustix::io::Result<()>,
) -> Result<(), std::io::Error> {
    match sys::process::clone_into(flags, None)? {
        None => {
            let code = work().err().map_or(0, |error| error.raw_os_error());
            sys::process::leave(code.clamp(0, 255));
        }
        Some((pid, _)) => {
            let status = rustix::process::waitpid(Some(pid), WaitOptions::empty())?;
            match status.and_then(|(_, status)| status.exit_status()) {
                Some(0) => Ok(()),
                Some(errno) => Err(std::io::Error::from_raw_os_error(errno)),
                None => Err(std::io::ErrorKind::Other.into()),
            }
        }
    }
}

fn namespace(flag: libc::c_int, name: &str, off: bool) -> Feature {
    let hint = "allow user namespaces: kernel.unprivileged_userns_clone=1, user.max_user_namespaces, AppArmor's restriction";
    if off {
        return Feature::missing(OFF, hint);
    }
    match try_in_child(libc::CLONE_NEWUSER | flag, || Ok(())) {
        Ok(()) => Feature::available(format!("{name} namespace made")),
        Err(error) => Feature::missing(error.to_string(), hint),
    }
}

fn overlay(dirs: &RuntimeDirs, off: bool) -> Feature {
    let hint =
        "Linux 5.11 mounts overlays in user namespaces; the state directory must not be on an overlay itself";
    if off {
        return Feature::missing(OFF, hint);
    }
    let outside = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let place = dirs.root.join(format!(".probe-{}", std::process::id()));
    let made = ["lower", "upper", "work", "mnt"]
        .iter()
        .try_for_each(|name| std::fs::create_dir_all(place.join(name)));
    let tried = made.and_then(|()| {
        try_in_child(libc::CLONE_NEWUSER | libc::CLONE_NEWNS, || mount_probe(&place, outside))
    });
    let _ = std::fs::remove_dir_all(&place);
    match tried {
        Ok(()) => Feature::available("overlay with userxattr mounted"),
        Err(error) => Feature::missing(error.to_string(), hint),
    }
}

fn mount_probe(place: &Path, outside: (u32, u32)) -> rustix::io::Result<()> {
    // An unmapped user owns nothing inside, not even what was just made for it.
    let write = |file: &str, text: String| {
        std::fs::write(format!("/proc/self/{file}"), text)
            .map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{DEFAULT_UID} {} 1", outside.0))?;
    write("gid_map", format!("{DEFAULT_UID} {} 1", outside.1))?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    rustix::process::chdir(place)?;
    let options = c"lowerdir=lower,upperdir=upper,workdir=work,userxattr,volatile";
    mount("overlay", "mnt", "overlay", MountFlags::NOSUID | MountFlags::NODEV, options)
}

fn landlock_feature(abi: u32) -> Feature {
    match abi {
        0 => Feature::missing(
            "the kernel has no Landlock",
            "boot with lsm=landlock,… on a kernel with CONFIG_SECURITY_LANDLOCK",
        ),
        abi => Feature::available(format!("ABI {abi}")),
    }
}

fn seccomp(prepared: &Prepared, off: bool) -> Feature {
    let hint = "the kernel needs CONFIG_SECCOMP_FILTER";
    if off {
        return Feature::missing(OFF, hint);
    }
    if let Err(error) = &prepared.filters {
        return Feature::missing(error.message.clone(), hint);
    }
    match std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail") {
        Ok(actions) => Feature::available(actions.trim().to_owned()),
        Err(error) => Feature::missing(error.to_string(), hint),
    }
}

fn cgroups(prepared: &Prepared, off: bool) -> Cgroups {
    match off {
        true => {
            Cgroups { version: CgroupVersion::None, writable: Vec::new(), feature: Feature::missing(OFF, "") }
        }
        false => prepared.hierarchy.probe(),
    }
}

fn uid_range() -> Feature {
    if !rustix::process::geteuid().is_root() {
        return Feature::missing(
            "not root",
            "sandboxes have the single user `user`, which is yourself outside",
        );
    }
    if !identity::has_range() {
        return Feature::missing(
            "the range is not mapped where this runs",
            "map it, or accept the single user `user`",
        );
    }
    let range = u64::from(HOST_ID_BASE)..u64::from(HOST_ID_BASE) + u64::from(HOST_ID_COUNT);
    if let Some(taken) = first_taken(&range) {
        return Feature::missing(
            format!("{taken} uses ids of the range"),
            "move that account out of the range",
        );
    }
    Feature::available(format!("{}-{}", range.start, range.end - 1))
}

/// An account or a subordinate range that overlaps ours.
fn first_taken(range: &std::ops::Range<u64>) -> Option<String> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    for line in passwd.lines() {
        let mut fields = line.split(':');
        let (name, uid) = (fields.next()?, fields.nth(1).and_then(|uid| uid.parse().ok()));
        if uid.is_some_and(|uid| range.contains(&uid)) {
            return Some(format!("account {name}"));
        }
    }
    let subuid = std::fs::read_to_string("/etc/subuid").unwrap_or_default();
    subuid.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, start) = (fields.next()?, fields.next()?.parse::<u64>().ok()?);
        let count = fields.next()?.parse::<u64>().ok()?;
        (start < range.end && start.saturating_add(count) > range.start)
            .then(|| format!("subordinate range of {name}"))
    })
}

fn idmapped(off: bool) -> Feature {
    let hint = "Linux 5.12 and root; without it a mounted directory keeps its owners";
    if off {
        return Feature::missing(OFF, hint);
    }
    if !rustix::process::geteuid().is_root() {
        return Feature::missing("not root", hint);
    }
    Feature::available("mount_setattr; whether a file system takes part shows at the mount")
}

fn pidfd() -> Feature {
    match rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()) {
        Ok(_) => Feature::available("pidfd_open"),
        Err(error) => Feature::missing(std::io::Error::from(error).to_string(), "Linux 5.3 has it"),
    }
}
