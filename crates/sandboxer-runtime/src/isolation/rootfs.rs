//! The sandbox's file tree. Runs inside its user and mount namespace; the working directory is the
//! sandbox's own, and the tree grows over `layer/` until `pivot_root` makes it the root.

use super::base::Base;
use crate::dirs::{LAYER, WORK};
use crate::error::{AtStep as _, Result, RuntimeError};
use crate::spec::SandboxSpec;
use crate::sys;
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_bind,
    mount_change, mount_remount, move_mount, open_tree, unmount,
};
use std::ffi::CString;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// The new root is mounted over its own writable layer.
const NEW_ROOT: &str = LAYER;
/// The devices a program may expect; each is the host's own.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const DEFAULT_TMP_MB: u64 = 512;
const RUN_MB: u64 = 64;
const SHM_MB: u64 = 64;

/// Opens what lies below the writable layer, topmost first, while this process is still who it was
/// outside and can reach it.
pub(crate) fn open_layers(base: &Base, spec: &SandboxSpec) -> Result<Vec<OwnedFd>> {
    let layers = spec.layers.iter().chain([&base.skeleton]);
    let opened = layers.map(|path| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open(path, flags, Mode::empty()).at("layers", format!("cannot open the layer {}", path.display()))
    });
    opened.collect()
}

/// Nothing mounted here may appear on the host, nor the other way round.
pub(crate) fn make_private() -> Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .at("mount_private", "cannot detach the mounts from the host's")
}

/// Mounts the root over its own writable layer. `volatile` because a sandbox does not outlive its host's
/// crash, and because without it every teardown would wait until the whole disk is written.
pub(crate) fn mount_overlay(lowers: &[OwnedFd]) -> Result<()> {
    let lowers: Vec<String> = lowers.iter().map(|fd| format!("/proc/self/fd/{}", fd.as_raw_fd())).collect();
    let options = format!("lowerdir={},upperdir={LAYER},workdir={WORK},userxattr,volatile", lowers.join(":"));
    let options = CString::new(options).map_err(|_| RuntimeError::invalid("overlay options"))?;
    mount("overlay", NEW_ROOT, "overlay", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())
        .at("overlay", "cannot mount the root")
        .map_err(|e| {
            e.with_hint("the kernel needs overlay mounts in user namespaces with `userxattr` (Linux 5.11)")
        })
}

/// Shows the host's system directories, read-only.
pub(crate) fn bind_system(base: &Base) -> Result<()> {
    for name in &base.system {
        let fail = format!("cannot show /{name}");
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let tree = open_tree(CWD, format!("/{name}"), flags).at("system", &fail)?;
        sys::mount::set_attributes(&tree, true, None).at("system", &fail)?;
        move_mount(&tree, "", CWD, in_root(name), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .at("system", &fail)?;
    }
    Ok(())
}

/// A private `/proc`, mounted while the host's is still visible: the kernel demands that.
pub(crate) fn mount_proc() -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", in_root("proc"), "proc", flags, None)
        .at("proc", "cannot mount a private /proc")
        .map_err(|e| e.with_hint("inside a container, its /proc must not be masked"))?;
    // The settings of the kernel are read-only whatever their file modes say.
    let sys = in_root("proc/sys");
    mount_bind(&sys, &sys).at("proc_sys", "cannot bind /proc/sys")?;
    mount_remount(&sys, flags | MountFlags::BIND | MountFlags::RDONLY, c"")
        .at("proc_sys", "cannot make /proc/sys read-only")
}

/// A minimal `/dev`: the skeleton has the empty files and the links, the devices are bound over them.
pub(crate) fn mount_devices() -> Result<()> {
    for device in DEVICES {
        mount_bind(format!("/dev/{device}"), in_root(&format!("dev/{device}")))
            .at("devices", format!("cannot bind /dev/{device}"))?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("devpts", in_root("dev/pts"), "devpts", flags, c"newinstance,ptmxmode=0666,mode=0620")
        .at("devpts", "cannot mount the terminals")
}

/// Memory-backed directories, each with a bound.
pub(crate) fn mount_tmpfs(spec: &SandboxSpec) -> Result<()> {
    let tmp_mb = spec.limits.tmp_mb.unwrap_or(DEFAULT_TMP_MB);
    let sizes = [("tmp", tmp_mb, "1777"), ("run", RUN_MB, "0755"), ("dev/shm", SHM_MB, "1777")];
    for (target, mb, mode) in sizes {
        let options = CString::new(format!("size={mb}m,mode={mode},nr_inodes={}", mb.saturating_mul(256)));
        let options = options.map_err(|_| RuntimeError::invalid("tmpfs options"))?;
        mount("tmpfs", in_root(target), "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())
            .at("tmpfs", format!("cannot mount /{target}"))?;
    }
    Ok(())
}

/// After the pivot: a read-only view of a folder in its own place. The writable one below can no longer be reached.
pub(crate) fn make_read_only(path: &str) -> Result<()> {
    let fail = format!("cannot make {path} read-only");
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, path, flags).at("workspace", &fail)?;
    sys::mount::set_attributes(&tree, true, None).at("workspace", &fail)?;
    move_mount(&tree, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).at("workspace", &fail)
}

pub(crate) fn in_root(path: &str) -> String {
    format!("{NEW_ROOT}/{path}")
}

/// Makes the new tree the root and lets go of the host's.
pub(crate) fn pivot() -> Result<()> {
    rustix::process::chdir(NEW_ROOT).at("pivot_root", "cannot enter the new root")?;
    // Old and new root in the same place: the old one ends up on top and is unmounted from there.
    rustix::process::pivot_root(".", ".").at("pivot_root", "cannot change the root")?;
    unmount(".", UnmountFlags::DETACH).at("pivot_root", "cannot detach the host's root")?;
    rustix::process::chdir("/").at("pivot_root", "cannot enter the new root")
}
