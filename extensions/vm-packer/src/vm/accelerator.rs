//! What runs the guest's instructions: the processor by KVM where that really works, otherwise software.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::launch::{launcher, probe_user};
use crate::files::{private_folder, replace};
use crate::tools::Tools;

/// How long a working KVM takes at most to run eight instructions.
const PROBE_LIMIT: Duration = Duration::from_secs(5);
/// What QEMU's debug port makes of the number that the probe writes there: `(0x10 << 1) | 1`.
const PROBE_EXIT: i32 = 33;
/// `mov al, 0x10; out 0xf4, al; cli; hlt; jmp $-1`.
const PROBE_CODE: [u8; 8] = [0xb0, 0x10, 0xe6, 0xf4, 0xfa, 0xf4, 0xeb, 0xfd];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Accelerator {
    Kvm,
    /// Software; everywhere, and slower.
    Tcg,
}

impl Accelerator {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// QEMU's name of the processor that the guest sees.
    pub(crate) const fn cpu(self) -> &'static str {
        match self {
            Self::Kvm => "host",
            Self::Tcg => "max",
        }
    }

    /// Finds out, once per start of this machine: the answer is kept in the state folder.
    pub(crate) async fn here(tools: &Tools, state_dir: &Path) -> Self {
        if !promising() {
            return Self::Tcg;
        }
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = boot.trim();
        let note = state_dir.join("accelerator");
        // Another user may have other rights.
        let key = format!("{boot} {}", rustix::process::geteuid().as_raw());
        if let Ok(noted) = std::fs::read_to_string(&note)
            && let Some(answer) = noted.strip_prefix(&key)
        {
            return if answer.trim() == "kvm" { Self::Kvm } else { Self::Tcg };
        }
        let answer = if runs(tools, state_dir).await { Self::Kvm } else { Self::Tcg };
        let _ = private_folder(state_dir)
            .and_then(|()| replace(&note, format!("{key} {}\n", answer.as_str()).as_bytes()));
        answer
    }
}

/// Whether it is worth asking: there is a device, and the processor can do it. A device alone may lead nowhere.
fn promising() -> bool {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let capable = flags.split_whitespace().any(|flag| flag == "vmx" || flag == "svm");
    capable && std::fs::File::options().read(true).write(true).open(super::launch::KVM).is_ok()
}

/// Boots eight instructions with KVM, as the user that machines run as.
async fn runs(tools: &Tools, state_dir: &Path) -> bool {
    let Ok(folder) =
        tempfile::Builder::new().prefix("probe-").tempdir_in(state_dir).or_else(|_| tempfile::tempdir())
    else {
        return false;
    };
    let mut sector = [0_u8; 512];
    sector[..PROBE_CODE.len()].copy_from_slice(&PROBE_CODE);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    let user = probe_user(tools);
    let disk = folder.path().join("probe.img");
    let prepared = std::fs::write(&disk, sector).and_then(|()| match user {
        Some(id) => [folder.path(), &disk]
            .iter()
            .try_for_each(|path| std::os::unix::fs::chown(path, Some(id), Some(id))),
        None => Ok(()),
    });
    let Ok(mut command) = launcher(tools, user, true) else { return false };
    command.args(["-M", "pc", "-accel", "kvm", "-cpu", "host", "-m", "16", "-nodefaults", "-no-user-config"]);
    command.args(["-display", "none", "-no-reboot", "-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]);
    command.args(["-drive", "file=probe.img,format=raw,if=ide,readonly=off"]);
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop(true);
    let ended = async { command.status().await.ok()?.code() };
    prepared.is_ok() && tokio::time::timeout(PROBE_LIMIT, ended).await == Ok(Some(PROBE_EXIT))
}
