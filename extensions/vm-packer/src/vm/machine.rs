//! QEMU's command line and its start.

use std::ffi::OsString;
use std::process::Stdio;

use sandboxer_core::{Error, ErrorKind, Result};
use tokio::process::Command;

use super::launch::launcher;
use super::process::Process;
use super::{Accelerator, Place, Size, console};
use crate::image::Image;
use crate::tools::Tools;

/// What QEMU may not do itself: start programs, gain rights, use old or scheduling system calls.
const SECCOMP: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";
pub(crate) struct Machine<'a> {
    pub(crate) place: &'a Place,
    pub(crate) image: &'a Image,
    pub(crate) size: Size,
    pub(crate) accelerator: Accelerator,
    pub(crate) user: Option<u32>,
}

impl Machine<'_> {
    fn arguments(&self) -> Vec<OsString> {
        let (cpu, accelerator) = (self.accelerator.cpu(), self.accelerator.as_str());
        let mut out: Vec<OsString> = Vec::new();
        let mut put = |words: &[&str]| out.extend(words.iter().map(OsString::from));
        put(&["-name", &format!("sandboxer-{}", self.place.tag)]);
        put(&["-M", "pc,usb=off,vmport=off", "-accel", accelerator, "-cpu", cpu]);
        put(&["-smp", &self.size.cpus.to_string(), "-m", &self.size.memory_mb.to_string()]);
        put(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-sandbox", SECCOMP]);
        // The overlay lives as long as the machine, so nothing has to reach the host's disk in any order.
        put(&["-drive", "file=disk.qcow2,format=qcow2,if=virtio,cache=unsafe,discard=unmap"]);
        put(&["-drive", "file=seed.img,format=raw,if=virtio,readonly=on"]);
        // `restrict`: the guest reaches nobody. Port 0: QEMU binds a free one itself, and nobody can be quicker.
        put(&["-netdev", "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:0-:22"]);
        put(&["-device", "virtio-net-pci,netdev=net,romfile="]);
        put(&["-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng"]);
        put(&["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]);
        put(&["-qmp", "unix:qmp.sock,server=on,wait=off"]);
        if self.image.kernel.is_some() {
            put(&["-kernel", "vmlinuz", "-append", self.image.cmdline.as_deref().unwrap_or("console=ttyS0")]);
            if self.image.initrd.is_some() {
                put(&["-initrd", "initrd"]);
            }
        }
        out
    }

    /// Starts QEMU in the machine's folder, in a session of its own, and what keeps its console's log.
    pub(crate) fn start(&self, tools: &Tools) -> Result<Process> {
        let failed = |what: &str, source| {
            Error::new(ErrorKind::BackendFailed, format!("{what} cannot be started")).with_source(source)
        };
        let folder = self.place.machine();
        let (reader, writer) = std::io::pipe().map_err(|source| failed("the console's log", source))?;
        let errors = writer.try_clone().map_err(|source| failed("the console's log", source))?;
        let setsid = tools.setsid.path()?;
        let mut log = Command::new(setsid);
        log.args(["/bin/sh", "-c", console::KEEP, "console"]).arg(self.place.folder()).current_dir(&folder);
        log.stdin(reader).stdout(Stdio::null()).stderr(Stdio::null());
        reap(log.spawn().map_err(|source| failed("the console's log", source))?);

        let mut command = launcher(tools, self.user, self.accelerator == Accelerator::Kvm)?;
        command.args(self.arguments()).current_dir(&folder);
        command.stdin(Stdio::null()).stdout(writer).stderr(errors);
        let child = command.spawn().map_err(|source| failed("QEMU", source))?;
        let process = child.id().and_then(|pid| Process::of(i32::try_from(pid).ok()?));
        reap(child);
        process.ok_or_else(|| Error::new(ErrorKind::BackendFailed, "QEMU ended at once"))
    }
}

/// Takes note of a child's end, so that it does not stay in the table of processes.
fn reap(mut child: tokio::process::Child) {
    tokio::spawn(async move { child.wait().await });
}
