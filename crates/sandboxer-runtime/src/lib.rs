//! The native Linux sandbox, usable as a library by itself: no daemon, no image, no root needed.
//!
//! Three processes make a sandbox. The *launcher* is one small process per caller and forks a
//! *supervisor* per sandbox, which stays outside, holds the deadline, the cgroup and the control
//! socket, and removes everything when it ends. The *init* is PID 1 inside and forks the execs.
//!
//! ```no_run
//! use sandboxer_runtime::{ExecSpec, LauncherExe, Runtime, RuntimeDirs, SandboxSpec};
//! use std::time::Duration;
//! use tokio::io::AsyncReadExt as _;
//!
//! # async fn run() -> sandboxer_runtime::Result<()> {
//! sandboxer_runtime::run_if_launcher(); // the first line of `main`, before any thread
//! let runtime = Runtime::new(RuntimeDirs::new("/var/lib/sandboxer"), LauncherExe::CurrentExe);
//! let sandbox = runtime.launch(SandboxSpec::new("sbx_demo", Duration::from_secs(60))).await?;
//! let mut session = sandbox.control.exec(ExecSpec::new(["echo", "hello"])).await?;
//! let mut out = Vec::new();
//! if let Some(stdout) = session.stdout.as_mut() {
//!     stdout.read_to_end(&mut out).await.ok();
//! }
//! assert_eq!(session.wait().await?.code, 0);
//! runtime.stop("sbx_demo").await?;
//! # Ok(()) }
//! ```

// The one crate that talks to the kernel directly: namespaces, mounts, fork. Every block says why it is sound.
#![allow(unsafe_code)]
#![cfg(target_os = "linux")]

mod cgroup;
mod cleanup;
mod client;
mod dirs;
mod ends;
mod error;
pub mod fault;
mod identity;
mod init;
mod isolation;
mod launcher;
pub mod mounts;
mod probe;
mod probing;
mod report;
mod spec;
mod supervisor;
mod sys;
mod wire;

pub use client::{
    Control, ExecHandle, ExecInput, ExecOutput, ExecSession, FileReader, FileWriter, Files, Found, Launched,
    LauncherExe, Runtime, Stdio,
};
pub use dirs::RuntimeDirs;
pub use error::{ErrorKind, Result, RuntimeError};
pub use probe::{CgroupVersion, Cgroups, Feature, Probe, ProbeOverrides};
pub use report::{
    CleanupReport, Control as ControlName, Enforced, EnforcedControl, ExecExit, ExecInfo, ExecState,
    LeftBehind, LogChunk, Outcome, Status, Usage,
};
pub use spec::{ExecSpec, FileEntry, FileKind, FileOp, Image, Limits, Mount, SandboxSpec, Stream, Tty};

/// Becomes the launcher when the process was started as one, and never returns then.
///
/// Call it first in `main`: the launcher forks, so no thread may exist yet.
pub fn run_if_launcher() {
    if std::env::args_os().nth(1).is_some_and(|arg| arg == client::LAUNCHER_MARKER) {
        launcher::run();
    }
}
