//! A runtime in a directory of its own, and ways to look whether something was left behind.
#![allow(dead_code, reason = "every test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

use sandboxer_runtime::{
    Control, ExecExit, ExecSpec, Launched, LauncherExe, ProbeOverrides, Runtime, RuntimeDirs, SandboxSpec,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt as _;

pub(crate) struct Fixture {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) runtime: Runtime,
}

pub(crate) fn launcher() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_sandboxer-launcher"))
}

/// An id that no other test has, because cgroups are named after it.
pub(crate) fn id(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::new(RuntimeDirs::new(dir.path().join("state")), LauncherExe::Path(launcher()));
        Self { dir, runtime }
    }

    pub(crate) fn with_overrides(overrides: ProbeOverrides) -> Self {
        let mut fixture = Self::new();
        fixture.runtime = fixture.runtime.with_overrides(overrides);
        fixture
    }

    pub(crate) fn spec(&self, name: &str) -> SandboxSpec {
        SandboxSpec::new(id(name), Duration::from_secs(120))
    }

    pub(crate) async fn launch(&self, name: &str) -> Launched {
        self.runtime.launch(self.spec(name)).await.unwrap()
    }

    pub(crate) async fn end(&self, launched: &Launched) {
        let report = self.runtime.stop(&launched.id).await.unwrap();
        assert!(report.is_clean(), "left behind: {:?}", report.left);
        self.assert_nothing_left(&launched.id);
        assert!(!process_exists(launched.init_pid));
        eventually("the supervisor leaves", || !is_ours(launched.supervisor_pid)).await;
    }

    pub(crate) fn assert_nothing_left(&self, id: &str) {
        let path = self.runtime.dirs().sandbox(id);
        assert!(!path.exists(), "{} is still there", path.display());
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(path.to_str().unwrap()), "something is still mounted");
        assert_eq!(cgroups_of(id), Vec::<PathBuf>::new(), "cgroups are left");
    }
}

pub(crate) fn process_exists(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn is_ours(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.contains("(sbx-") && !stat.contains(") Z")
}

pub(crate) fn cgroups_of(id: &str) -> Vec<PathBuf> {
    fn walk(dir: &Path, name: &str, depth: usize, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) && depth > 0 {
                if entry.file_name().to_string_lossy().starts_with(name) {
                    found.push(entry.path());
                }
                walk(&entry.path(), name, depth - 1, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(Path::new("/sys/fs/cgroup"), &format!("sandboxer-{id}-"), 6, &mut found);
    found
}

/// Waits until something holds; panics after ten seconds.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "did not happen: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) struct Ran {
    pub(crate) exit: ExecExit,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a command with an empty stdin and collects what it says.
pub(crate) async fn run(control: &Control, spec: ExecSpec) -> Ran {
    let mut session = control.exec(spec).await.unwrap();
    drop(session.stdin.take());
    let (mut stdout, mut stderr) = (session.stdout.take().unwrap(), session.stderr.take().unwrap());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (read_out, read_err) = tokio::join!(stdout.read_to_end(&mut out), stderr.read_to_end(&mut err));
    read_out.unwrap();
    read_err.unwrap();
    let exit = session.wait().await.unwrap();
    Ran {
        exit,
        stdout: String::from_utf8_lossy(&out).into_owned(),
        stderr: String::from_utf8_lossy(&err).into_owned(),
    }
}

pub(crate) async fn sh(control: &Control, script: &str) -> Ran {
    run(control, ExecSpec::new(["/bin/sh", "-c", script])).await
}

/// As root inside, where the sandbox has it.
pub(crate) async fn sh_root(control: &Control, script: &str) -> Ran {
    let mut spec = ExecSpec::new(["/bin/sh", "-c", script]);
    spec.user = Some("root".to_owned());
    run(control, spec).await
}
