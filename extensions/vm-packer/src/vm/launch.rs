//! How QEMU is started: in a session of its own, and as a user of its own where that is possible.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use sandboxer_core::Result;
use tokio::process::Command;

use crate::tools::Tools;

pub(crate) const KVM: &str = "/dev/kvm";
/// Users that no account has; each machine gets one of them, so that one that breaks out finds nothing of the others.
const FIRST_USER: u32 = 0x7000_0000;
const USERS: u32 = 0x0fff_0000;

/// The user that a machine's QEMU runs as, if we can choose one.
pub(crate) fn own_user(tag: &str, tools: &Tools) -> Option<u32> {
    let hash = sandboxer_core::hash::sha256_hex(tag.as_bytes());
    let number = u32::from_str_radix(&hash[..8], 16).unwrap_or_default();
    probe_user(tools).map(|first| first + 1 + number % USERS)
}

/// One like it for a try.
pub(crate) fn probe_user(tools: &Tools) -> Option<u32> {
    (rustix::process::geteuid().is_root() && tools.setpriv.found().is_some()).then_some(FIRST_USER)
}

/// QEMU without arguments, as this user and with nothing of ours.
pub(crate) fn launcher(tools: &Tools, user: Option<u32>, kvm: bool) -> Result<Command> {
    let mut command = Command::new(tools.setsid.path()?);
    if let Some(user) = user {
        let id = user.to_string();
        command.arg(tools.setpriv.path()?);
        command.args([
            "--reuid",
            &id,
            "--regid",
            &id,
            "--inh-caps=-all",
            "--bounding-set=-all",
            "--no-new-privs",
        ]);
        match kvm_group().filter(|_| kvm) {
            Some(group) => command.args(["--groups", &group.to_string()]),
            None => command.arg("--clear-groups"),
        };
    }
    command.arg(tools.qemu.path()?);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C");
    Ok(command)
}

/// The group that may use KVM, where not everybody may.
fn kvm_group() -> Option<u32> {
    let data = std::fs::metadata(KVM).ok()?;
    (data.permissions().mode() & 0o006 != 0o006).then(|| data.gid())
}
