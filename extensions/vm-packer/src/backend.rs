//! The contract, method by method.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::capability::Capability;
use sandboxer_core::exec::{BoxRead, ExecSession, ExecSpec};
use sandboxer_core::extension::{
    BackendStatus, BoxDuplex, CheckReport, CleanupReport, Description, Extension, Found, Handle, Life,
    ProvisionRequest, Reachability,
};
use sandboxer_core::files::FileInfo;
use sandboxer_core::host::LOCAL;
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::profile::Image;
use sandboxer_core::snapshot::Taken;
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{Dur, Error, ErrorKind, Result, SnapshotId};

use crate::attach::Attached;
use crate::guest::Guest;
use crate::machines::Machines;
use crate::tools::Tools;
use crate::{Settings, check};

/// An image may have to be built first, from sources far away.
const BUILD_LIMIT: Dur = Dur::from_secs(3_600);
/// Software emulation takes its time to boot.
const BOOT_LIMIT: Dur = Dur::from_secs(900);

pub struct VmPacker {
    settings: Settings,
    state_dir: PathBuf,
    machines: Machines,
    attached: Attached,
}

impl VmPacker {
    pub fn new(settings: Settings) -> Self {
        let state_dir = real(&settings.state_dir);
        Self {
            machines: Machines::new(settings.clone(), state_dir.clone()),
            attached: Attached::new(settings.hosts.clone(), state_dir.clone()),
            settings,
            state_dir,
        }
    }

    /// The way into the sandbox of a handle.
    async fn guest(&self, handle: &Handle) -> Result<Guest> {
        match self.attached.is(&handle.tag) {
            true => self.attached.guest(&handle.tag).await,
            false => self.machines.guest(&handle.tag).await,
        }
    }

    /// Refuses what only a machine of our own can do.
    fn own(&self, handle: &Handle, what: &str) -> Result<()> {
        match self.attached.is(&handle.tag) {
            true => Err(Error::unsupported(crate::ID, &format!("{what} of a machine that it did not boot"))),
            false => Ok(()),
        }
    }
}

/// The path without links, also where its end is not there yet: processes are found by it.
fn real(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for ancestor in whole.ancestors() {
        if let (Ok(real), Ok(rest)) = (ancestor.canonicalize(), whole.strip_prefix(ancestor)) {
            return real.join(rest);
        }
    }
    whole
}

#[async_trait]
impl Extension for VmPacker {
    fn describe(&self) -> Description {
        let configuration = [
            ("packer.template", "the template's file, or builtin:small; it leaves a disk in `output/`"),
            ("packer.variables", "the template's variables"),
            ("packer.files", "files and folders beside the template that it uses"),
            ("packer.ssh_user", "the account in the image; root when absent"),
            ("inputs.vm", "the name of a registered host: a workspace on it instead of a machine of its own"),
        ];
        Description {
            id: crate::ID.into(),
            summary: "Virtual machines: images built by Packer and booted under QEMU, or a workspace on a running one".into(),
            capability: Capability {
                isolation: IsolationLevel::Microvm,
                exec: true,
                exec_split_streams: true,
                exec_stdin: true,
                exec_tty: true,
                exec_user: true,
                files: true,
                archive: true,
                port: true,
                extend_ttl: true,
                idle_reap: true,
                pause: true,
                snapshot: true,
                restore: true,
                fork: true,
                only_by_name: true,
                self_hosted: true,
                host_local: true,
                backend_logs: true,
                image_host: true,
                ..Capability::default()
            },
            pricing: "self-hosted".into(),
            configuration: configuration.map(|(key, text)| (key.to_owned(), text.to_owned())).into(),
        }
    }

    async fn check(&self, host: &str) -> Result<CheckReport> {
        only_local(host)?;
        Ok(check::report(&Tools::find(&self.settings), &self.state_dir).await)
    }

    fn provision_timeout(&self, spec: &SandboxSpec) -> Option<Dur> {
        Some(if spec.packer.template.is_some() { BUILD_LIMIT } else { BOOT_LIMIT })
    }

    async fn provision(&self, request: ProvisionRequest) -> Result<Handle> {
        only_local(&request.host)?;
        if request.spec.image != Image::Host {
            return Err(Error::unsupported(crate::ID, "images other than those of a Packer template"));
        }
        if let Some(vm) = request.spec.inputs.get("vm") {
            return self.attached.provision(vm, &request).await;
        }
        if request.spec.packer.template.is_none() && request.from.is_none() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "there is no machine: neither a template nor a running one",
            )
            .with_hint(
                "set packer.template in the profile (builtin:small to try it), or give --input vm=NAME",
            ));
        }
        self.machines.provision(request).await
    }

    async fn wait_ready(&self, handle: &Handle) -> Result<Reachability> {
        let guest = self.guest(handle).await?;
        guest.answers().await?;
        Ok(Reachability {
            method: "ssh".into(),
            endpoint: guest.endpoint,
            probe: "a command answered over SSH".into(),
            ports: Vec::new(),
        })
    }

    async fn teardown(&self, host: &str, tag: &str, _handle: Option<&Handle>) -> Result<CleanupReport> {
        only_local(host)?;
        let mut report = self.attached.teardown(tag).await?;
        let machine = self.machines.teardown(tag).await?;
        report.removed.extend(machine.removed);
        report.left.extend(machine.left);
        Ok(report)
    }

    async fn list(&self, host: &str, tag_prefix: &str) -> Result<Vec<Found>> {
        only_local(host)?;
        let mut found = self.machines.list(tag_prefix)?;
        found.extend(self.attached.list(tag_prefix).await?);
        Ok(found)
    }

    async fn life(&self, handle: &Handle) -> Result<Life> {
        Ok(Life::of(match self.attached.is(&handle.tag) {
            true => self.attached.is_alive(&handle.tag).await?,
            false => self.machines.running(&handle.tag).is_ok(),
        }))
    }

    async fn status(&self, handle: &Handle) -> Result<BackendStatus> {
        match self.attached.is(&handle.tag) {
            true => self.attached.status(&handle.tag).await,
            false => self.machines.status(&handle.tag).await,
        }
    }

    async fn extend(&self, handle: &Handle, expires_at: Timestamp) -> Result<()> {
        match self.attached.is(&handle.tag) {
            true => self.attached.extend(&handle.tag, expires_at).await,
            false => self.machines.extend(&handle.tag, expires_at).await,
        }
    }

    async fn exec(&self, handle: &Handle, spec: ExecSpec) -> Result<ExecSession> {
        match self.attached.is(&handle.tag) {
            true => self.attached.guest(&handle.tag).await?.exec(spec).await,
            false => self.machines.exec(&handle.tag, spec).await,
        }
    }

    async fn file_stat(&self, handle: &Handle, path: &str) -> Result<FileInfo> {
        self.guest(handle).await?.stat(path).await
    }

    async fn file_list(&self, handle: &Handle, path: &str) -> Result<Vec<FileInfo>> {
        self.guest(handle).await?.list(path).await
    }

    async fn file_read(&self, handle: &Handle, path: &str) -> Result<BoxRead> {
        self.guest(handle).await?.read(path).await
    }

    async fn file_write(&self, handle: &Handle, path: &str, mode: u32, data: BoxRead) -> Result<()> {
        self.guest(handle).await?.write(path, mode, data).await
    }

    async fn file_delete(&self, handle: &Handle, path: &str, recursive: bool) -> Result<()> {
        self.guest(handle).await?.delete(path, recursive).await
    }

    async fn file_mkdir(&self, handle: &Handle, path: &str) -> Result<()> {
        self.guest(handle).await?.mkdir(path).await
    }

    async fn file_rename(&self, handle: &Handle, from: &str, to: &str) -> Result<()> {
        self.guest(handle).await?.rename(from, to).await
    }

    async fn archive_get(&self, handle: &Handle, path: &str) -> Result<BoxRead> {
        self.guest(handle).await?.archive_get(path).await
    }

    async fn archive_put(&self, handle: &Handle, path: &str, tar: BoxRead) -> Result<()> {
        self.guest(handle).await?.archive_put(path, tar).await
    }

    async fn port_connect(&self, handle: &Handle, port: u16) -> Result<BoxDuplex> {
        self.guest(handle).await?.port(port).await
    }

    async fn backend_logs(&self, handle: &Handle, follow: bool) -> Result<BoxRead> {
        self.own(handle, "the console")?;
        self.machines.console(&handle.tag, follow)
    }

    async fn pause(&self, handle: &Handle) -> Result<()> {
        self.own(handle, "a pause")?;
        self.machines.pause(&handle.tag).await
    }

    async fn resume(&self, handle: &Handle) -> Result<()> {
        self.own(handle, "a pause")?;
        self.machines.resume(&handle.tag).await
    }

    async fn snapshot(&self, handle: &Handle, id: SnapshotId) -> Result<Taken> {
        self.own(handle, "a snapshot")?;
        self.machines.snapshot(&handle.tag, id).await
    }

    async fn snapshot_delete(
        &self,
        host: &str,
        id: SnapshotId,
        _taken: Option<&Taken>,
    ) -> Result<CleanupReport> {
        only_local(host)?;
        self.machines.snapshot_delete(id).await
    }

    async fn host_facts(&self, host: &str) -> Result<serde_json::Value> {
        only_local(host)?;
        Ok(check::facts(&Tools::find(&self.settings), &self.state_dir, self.machines.images().cache()).await)
    }
}

/// Packer and QEMU run where we are. A machine elsewhere is an input, not a place.
fn only_local(host: &str) -> Result<()> {
    if host == LOCAL {
        return Ok(());
    }
    Err(Error::unsupported(crate::ID, "other hosts than this one")
        .with_hint(format!("to use a running machine, register it and give --input vm={host}")))
}
