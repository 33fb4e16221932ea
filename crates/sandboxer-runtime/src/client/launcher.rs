//! The launcher process of this caller: started at the first use, started again if it died.

use super::LAUNCHER_MARKER;
use crate::error::{AtStep as _, Result, RuntimeError};
use crate::wire::{Conn, LauncherRequest, MAX_FRAME, pair};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Which executable the launcher is; it must call [`crate::run_if_launcher`] first in its `main`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LauncherExe {
    /// The running program itself.
    CurrentExe,
    Path(PathBuf),
}

pub(crate) struct Launcher {
    exe: LauncherExe,
    running: Mutex<Option<Running>>,
}

struct Running {
    child: Child,
    conn: Conn,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its socket is still open, so it would not leave by itself; the supervisors live on.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Launcher {
    pub(crate) fn new(exe: LauncherExe) -> Self {
        Self { exe, running: Mutex::new(None) }
    }

    /// Hands the request over and returns the socket on which the answer comes.
    pub(crate) fn request(&self, request: &LauncherRequest) -> Result<OwnedFd> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        for attempt in 0..2 {
            if running.is_none() {
                *running = Some(self.start()?);
            }
            let Some(launcher) = running.as_mut() else { continue };
            let (ours, theirs) = pair().at("launcher", "cannot make a socket pair")?;
            match launcher.conn.send_blocking(request, vec![theirs], 10_000) {
                Ok(()) => return Ok(ours),
                Err(error) if attempt == 1 => {
                    return Err(RuntimeError::io("launcher", "cannot reach the launcher", &error));
                }
                // It died since the last use; the next round starts another one.
                Err(_) => *running = None,
            }
        }
        Err(RuntimeError::protocol("the launcher ended twice in a row"))
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().map(|launcher| launcher.child.id())
    }

    fn start(&self) -> Result<Running> {
        let (ours, theirs) = pair().at("launcher", "cannot make a socket pair")?;
        let exe = match &self.exe {
            LauncherExe::CurrentExe => PathBuf::from("/proc/self/exe"),
            LauncherExe::Path(path) => path.clone(),
        };
        let mut command = Command::new(&exe);
        command.arg(LAUNCHER_MARKER).current_dir("/");
        // Supervisors outlive the caller, so they must hold neither its streams nor its variables.
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null()).env_clear();
        if let Some(fault) = std::env::var_os(crate::fault::VARIABLE) {
            command.env(crate::fault::VARIABLE, fault);
        }
        let child =
            command.spawn().at("launcher", format!("cannot start the launcher `{}`", exe.display()))?;
        Ok(Running { child, conn: Conn::new(ours, MAX_FRAME) })
    }
}
