//! The caller's side: everything asynchronous is here, the processes themselves use no executor.

mod connection;
mod control;
mod files;
mod launcher;
mod port;
mod runtime;
mod session;

pub use control::Control;
pub use files::{FileReader, FileWriter, Files};
pub use launcher::LauncherExe;
pub use runtime::{Found, Launched, Runtime};
pub use session::{ExecHandle, ExecInput, ExecOutput, ExecSession, Stdio};

/// The argument that makes a process the launcher.
pub(crate) const LAUNCHER_MARKER: &str = "__launcher";
