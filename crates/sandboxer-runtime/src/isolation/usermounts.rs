//! Host directories made visible inside, by descriptor: what was checked is what is mounted.

use super::rootfs::in_root;
use crate::error::{AtStep as _, ErrorKind, Result, RuntimeError};
use crate::identity::{DEFAULT_UID, HOST_ID_BASE};
use crate::spec::Mount;
use crate::sys;
use rustix::fs::{CWD, Mode, OFlags, fstat, open};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// A checked source and where it goes.
pub(crate) struct Prepared {
    pub(crate) target: PathBuf,
    pub(crate) read_only: bool,
    source: PathBuf,
    device: u64,
    inode: u64,
    is_dir: bool,
    /// As root, the detached mount itself.
    tree: Option<OwnedFd>,
    /// Why owners are not mapped, if they are not.
    pub(crate) unmapped: Option<String>,
}

/// Opens the checked sources; as root also makes the mounts, with the source's owner mapped to `user`.
pub(crate) fn prepare(
    mounts: &[Mount],
    checked: &[PathBuf],
    mapped: bool,
    idmap: bool,
) -> Result<Vec<Prepared>> {
    mounts.iter().zip(checked).map(|(mount, source)| prepare_one(mount, source, mapped, idmap)).collect()
}

fn prepare_one(mount: &Mount, source: &Path, mapped: bool, idmap: bool) -> Result<Prepared> {
    let fail = || format!("cannot open the mount source {}", mount.source.display());
    // Resolved before, so a link here was put in place after the check.
    let fd = rustix::fs::openat2(
        CWD,
        source,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        rustix::fs::ResolveFlags::NO_SYMLINKS,
    )
    .at("mount_source", fail())?;
    let stat = fstat(&fd).at("mount_source", fail())?;
    let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    if !kind.is_dir() && !kind.is_file() {
        let message = format!("mount source {} is neither a directory nor a file", mount.source.display());
        return Err(RuntimeError::new(ErrorKind::Refused, "mount_source", message));
    }
    let mut prepared = Prepared {
        target: mount.target.clone(),
        read_only: mount.read_only,
        source: source.to_owned(),
        device: stat.st_dev,
        inode: stat.st_ino,
        is_dir: kind.is_dir(),
        tree: None,
        unmapped: None,
    };
    if mapped {
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = open_tree(&fd, "", flags).at("mount_source", fail())?;
        prepared.unmapped = set_owner(&tree, mount.read_only, (stat.st_uid, stat.st_gid), idmap)?;
        prepared.tree = Some(tree);
    }
    Ok(prepared)
}

/// Maps the owner where the file system can; else the files keep their owners and are readable as others.
fn set_owner(tree: &OwnedFd, read_only: bool, owner: (u32, u32), idmap: bool) -> Result<Option<String>> {
    let reason = match idmap.then(|| mapping_namespace(owner)) {
        None => "idmapped mounts are switched off".to_owned(),
        Some(Err(error)) => error.to_string(),
        Some(Ok(namespace)) => match sys::mount::set_attributes(tree, read_only, Some(&namespace)) {
            Ok(()) => return Ok(None),
            Err(error) => format!("the file system does not map owners: {error}"),
        },
    };
    sys::mount::set_attributes(tree, read_only, None).at("mount_source", "cannot restrict a mount")?;
    Ok(Some(reason))
}

/// A user namespace that says: the source's owner on disk is `user` inside, and nobody else is anybody.
fn mapping_namespace((uid, gid): (u32, u32)) -> std::io::Result<OwnedFd> {
    let Some((pid, pidfd)) = sys::process::clone_into(libc::CLONE_NEWUSER, None)? else {
        // Holds the namespace until it has been opened; the parent kills it.
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
        loop {
            std::thread::park();
        }
    };
    let process = format!("/proc/{}", pid.as_raw_nonzero());
    let inside = HOST_ID_BASE + DEFAULT_UID;
    let opened = std::fs::write(format!("{process}/uid_map"), format!("{uid} {inside} 1"))
        .and_then(|()| std::fs::write(format!("{process}/gid_map"), format!("{gid} {inside} 1")))
        .and_then(|()| {
            Ok(open(format!("{process}/ns/user"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
        });
    sys::process::kill_and_wait(&pidfd, 5000);
    let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
    opened
}

/// Inside: puts one mount in its place below the new root.
pub(crate) fn attach(prepared: &Prepared) -> Result<()> {
    let shown = prepared.target.display().to_string();
    let target = make_target(prepared)?;
    let opened;
    let tree = match &prepared.tree {
        Some(tree) => tree,
        None => {
            opened = open_again(prepared)?;
            &opened
        }
    };
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", &target, "", flags).at("mount_attach", format!("cannot mount {shown}"))
}

/// As an ordinary user the mount can only be made inside; the source must still be the one that was checked.
fn open_again(prepared: &Prepared) -> Result<OwnedFd> {
    let shown = prepared.source.display().to_string();
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, &prepared.source, flags | OpenTreeFlags::AT_SYMLINK_NOFOLLOW);
    let tree = tree.at("mount_source", format!("cannot open the mount source {shown}"))?;
    let stat = fstat(&tree).at("mount_source", format!("cannot look at the mount source {shown}"))?;
    if (stat.st_dev, stat.st_ino) != (prepared.device, prepared.inode) {
        let message = format!("mount source {shown} changed between check and use");
        return Err(RuntimeError::new(ErrorKind::Refused, "mount_source", message));
    }
    sys::mount::set_attributes(&tree, prepared.read_only, None)
        .at("mount_source", "cannot restrict a mount")?;
    Ok(tree)
}

/// The place of the mount, made where it is missing. No component may be a link: layers are not trusted.
fn make_target(prepared: &Prepared) -> Result<OwnedFd> {
    let shown = prepared.target.display().to_string();
    let fail = format!("cannot make the mount target {shown}");
    let dir_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = open(in_root(""), dir_flags, Mode::empty()).at("mount_target", &fail)?;
    let parts: Vec<_> =
        prepared.target.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    for (index, part) in parts.iter().enumerate() {
        let name = part.as_os_str();
        let last = index + 1 == parts.len();
        if last && !prepared.is_dir {
            let flags = OFlags::CREATE | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let _ = rustix::fs::openat(&at, name, flags, Mode::from_raw_mode(0o644));
            return rustix::fs::openat(
                &at,
                name,
                OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            )
            .at("mount_target", &fail);
        }
        match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error).at("mount_target", &fail),
        }
        at = rustix::fs::openat(&at, name, dir_flags, Mode::empty()).at("mount_target", &fail)?;
    }
    debug_assert!(at.as_raw_fd() >= 0);
    Ok(at)
}
