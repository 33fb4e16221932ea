//! A real Packer, a real QEMU, and one folder of images for every test, so that the small image is built once.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use sandboxer_core::exec::{ExecOutcome, ExecSpec};
use sandboxer_core::extension::{Extension, Handle, Progress, ProvisionRequest};
use sandboxer_core::profile::{PackerOptions, Resources};
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{Dur, ExecId, SandboxId};
use sandboxer_ext_vm_packer::{Settings, VmPacker};
use sandboxer_testkit::real;
use tokio::io::AsyncReadExt as _;

/// Kept between runs: a cold run builds, a later one finds the image by its hash.
pub(crate) fn shared_state() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("vm-packer")
}

/// Whether this machine can build and boot.
pub(crate) fn available() -> Option<()> {
    real::require(components())
}

fn components() -> Result<(), String> {
    for (program, package) in [
        ("packer", "packer"),
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("qemu-img", "qemu-utils"),
        ("busybox", "busybox-static"),
        ("sshd", "openssh-server"),
        ("mke2fs", "e2fsprogs"),
        ("cpio", "cpio"),
    ] {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path)
            .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
            .any(|folder| folder.join(program).is_file());
        if !found {
            return Err(format!("{program} is not here: install the package {package}"));
        }
    }
    Ok(())
}

pub(crate) fn settings(state_dir: &Path) -> Settings {
    Settings::new(Arc::new(real::FixedHosts::new([])), state_dir)
}

pub(crate) fn extension(state_dir: &Path) -> Arc<dyn Extension> {
    Arc::new(VmPacker::new(settings(state_dir)))
}

/// A machine of the small image.
pub(crate) fn spec() -> SandboxSpec {
    with_template("builtin:small")
}

pub(crate) fn with_template(template: &str) -> SandboxSpec {
    SandboxSpec {
        packer: PackerOptions { template: Some(template.to_owned()), ..PackerOptions::default() },
        resources: Resources { memory_mb: Some(256), ..Resources::default() },
        ..SandboxSpec::default()
    }
}

pub(crate) fn request(spec: SandboxSpec) -> ProvisionRequest {
    let sandbox_id = SandboxId::generate();
    ProvisionRequest {
        sandbox_id,
        tag: sandbox_id.to_string(),
        spec,
        host: "local".into(),
        seed: None,
        from: None,
        progress: Progress::default(),
        expires_at: Dur::from_secs(600).after(Timestamp::now()),
        idle_reap: None,
    }
}

/// Hears what a build says.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    pub(crate) fn progress(&self) -> Progress {
        let lines = self.0.clone();
        Progress::new(move |line| lines.lock().unwrap().push(line.to_owned()))
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Whether somebody said this.
    pub(crate) fn has(&self, words: &str) -> bool {
        self.lines().iter().any(|line| line.contains(words))
    }

    pub(crate) async fn wait_for(&self, words: &str) {
        for _ in 0..600 {
            if self.has(words) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("`{words}` was never said: {:?}", self.lines());
    }
}

/// Tears a sandbox down when the test ends, however it ends.
pub(crate) struct Cleanup {
    pub(crate) extension: Arc<dyn Extension>,
    pub(crate) tag: String,
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        let (extension, tag) = (self.extension.clone(), self.tag.clone());
        let ended = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(extension.teardown("local", &tag, None))
        });
        let _ = ended.join();
    }
}

/// A script as a command.
pub(crate) fn spec_of(script: &str) -> ExecSpec {
    ExecSpec {
        exec_id: ExecId::generate(),
        argv: vec!["/bin/sh".into(), "-c".into(), script.into()],
        cwd: None,
        env: Default::default(),
        user: None,
        timeout: Some(Dur::from_secs(30)),
        tty: None,
        stdin: false,
    }
}

/// Runs a script in the sandbox: its end and what it said on both streams.
pub(crate) async fn sh(
    extension: &Arc<dyn Extension>,
    handle: &Handle,
    script: &str,
) -> (ExecOutcome, String) {
    let mut session = extension.exec(handle, spec_of(script)).await.unwrap();
    let (mut said, mut errors) = (String::new(), String::new());
    let mut stderr = session.stderr.take().unwrap();
    let (read, read_errors, outcome) = tokio::join!(
        session.stdout.read_to_string(&mut said),
        stderr.read_to_string(&mut errors),
        session.control.wait()
    );
    read.unwrap();
    read_errors.unwrap();
    (outcome.unwrap(), said + &errors)
}

/// Processes of this machine whose arguments contain this.
pub(crate) fn processes(words: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(words) {
            found.push(line);
        }
    }
    found
}

/// Waits until no process of this machine has this in its arguments.
pub(crate) async fn all_gone(words: &str) {
    for _ in 0..100 {
        if processes(words).is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("still running: {:?}", processes(words));
}
