//! Mount attributes that the libraries do not cover.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

#[repr(C)]
#[derive(Default)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

const MOUNT_ATTR_RDONLY: u64 = 0x1;
const MOUNT_ATTR_NOSUID: u64 = 0x2;
const MOUNT_ATTR_NODEV: u64 = 0x4;
const MOUNT_ATTR_IDMAP: u64 = 0x10_0000;
const MS_PRIVATE: u64 = 1 << 18;

/// Makes a mount nosuid, nodev and private, and as asked read-only and with its owners mapped.
pub(crate) fn set_attributes(mount: &OwnedFd, read_only: bool, userns: Option<&OwnedFd>) -> io::Result<()> {
    let mut attr = MountAttr {
        set: MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
        propagation: MS_PRIVATE,
        ..MountAttr::default()
    };
    if read_only {
        attr.set |= MOUNT_ATTR_RDONLY;
    }
    if let Some(userns) = userns {
        attr.set |= MOUNT_ATTR_IDMAP;
        attr.userns = userns.as_raw_fd() as u64;
    }
    const AT_RECURSIVE: libc::c_int = 0x8000;
    // Owners are mapped on one mount; everything else must hold for what is mounted below as well.
    let flags = libc::AT_EMPTY_PATH | if userns.is_some() { 0 } else { AT_RECURSIVE };
    // SAFETY: the path is an empty C string and the structure is read during the call only.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw mut attr,
            size_of::<MountAttr>(),
        )
    };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Switches the loopback interface of this network namespace on.
pub(crate) fn loopback_up() -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: `ifreq` is plain data for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request names the interface with a terminated string and lives through the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw mut request) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
