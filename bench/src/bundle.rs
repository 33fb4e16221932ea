//! The smallest root that runs a command: one static busybox, for the OCI runtimes and as an image for docker.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::peers::find;

const APPLETS: [&str; 3] = ["sh", "true", "sleep"];

/// An OCI bundle on disk: `config.json` and `rootfs/`.
pub(crate) struct Bundle {
    pub(crate) path: PathBuf,
}

impl Bundle {
    pub(crate) fn make(folder: &Path) -> Result<Self> {
        let busybox = find("busybox").context("busybox is not installed")?;
        let root = folder.join("rootfs");
        for name in ["bin", "proc", "dev", "sys", "tmp"] {
            std::fs::create_dir_all(root.join(name))?;
        }
        std::fs::copy(&busybox, root.join("bin/busybox"))?;
        for applet in APPLETS {
            symlink("busybox", root.join("bin").join(applet))?;
        }
        std::fs::write(folder.join("config.json"), serde_json::to_vec_pretty(&config())?)?;
        Ok(Self { path: folder.to_owned() })
    }

    /// The root as a tar file, as `docker import` takes it.
    pub(crate) fn tar(&self) -> Result<PathBuf> {
        let file = self.path.join("rootfs.tar");
        let made = Command::new("tar")
            .arg("-C")
            .arg(self.path.join("rootfs"))
            .arg("-cf")
            .arg(&file)
            .arg(".")
            .status()?;
        ensure!(made.success(), "tar failed");
        Ok(file)
    }
}

/// What `runc spec` writes, without a terminal and with `/bin/true`.
fn config() -> Value {
    let capabilities = ["CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE"];
    let mount = |target: &str, kind: &str, options: &[&str]| json!({ "destination": target, "type": kind, "source": kind, "options": options });
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": ["/bin/true"],
            "env": ["PATH=/bin"],
            "cwd": "/",
            "capabilities": { "bounding": capabilities, "effective": capabilities, "permitted": capabilities },
            "rlimits": [{ "type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024 }],
            "noNewPrivileges": true,
        },
        "root": { "path": "rootfs", "readonly": true },
        "hostname": "bench",
        "mounts": [
            mount("/proc", "proc", &[]),
            mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
            mount("/dev/pts", "devpts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
            mount("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
            mount("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
            mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        ],
        "linux": {
            "resources": { "devices": [{ "allow": false, "access": "rwm" }] },
            "namespaces": [
                { "type": "pid" }, { "type": "network" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" },
                { "type": "cgroup" },
            ],
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    })
}
