//! Launching, finding and ending sandboxes.

use super::connection::{Connection, no_answer, unexpected};
use super::control::Control;
use super::launcher::{Launcher, LauncherExe};
use crate::cleanup;
use crate::dirs::{self, RuntimeDirs};
use crate::ends;
use crate::error::{AtStep as _, ErrorKind, Result, RuntimeError};
use crate::probe::{Probe, ProbeOverrides};
use crate::report::{CleanupReport, Enforced};
use crate::spec::{SandboxSpec, validate_id};
use crate::wire::{Conn, LaunchRequest, LauncherRequest, MAX_FRAME, Reply};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const LAUNCH_LIMIT: Duration = Duration::from_secs(60);
/// The same with a seed, which may be large.
const SEEDED_LIMIT: Duration = Duration::from_secs(620);
const STOP_LIMIT: Duration = Duration::from_secs(20);
const PROBE_LIMIT_MS: i32 = 30_000;

/// The entry to all sandboxes below one state directory.
#[derive(Clone)]
pub struct Runtime {
    dirs: RuntimeDirs,
    overrides: ProbeOverrides,
    launcher: Arc<Launcher>,
}

/// A sandbox that runs.
#[derive(Debug)]
pub struct Launched {
    pub id: String,
    /// It ran before; nothing was started.
    pub existing: bool,
    pub supervisor_pid: i32,
    pub init_pid: i32,
    pub started_unix_ms: u64,
    pub enforced: Enforced,
    pub control: Control,
}

/// A sandbox directory on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub id: String,
    pub alive: bool,
    pub labels: BTreeMap<String, String>,
    pub deadline_unix_ms: Option<u64>,
}

impl Runtime {
    pub fn new(dirs: RuntimeDirs, exe: LauncherExe) -> Self {
        Self { dirs, overrides: ProbeOverrides::default(), launcher: Arc::new(Launcher::new(exe)) }
    }

    /// Behaves as if the kernel lacked the features switched off.
    #[must_use]
    pub fn with_overrides(mut self, overrides: ProbeOverrides) -> Self {
        self.overrides = overrides;
        self
    }

    pub fn dirs(&self) -> &RuntimeDirs {
        &self.dirs
    }

    /// The launcher's process id, while there is one.
    pub fn launcher_pid(&self) -> Option<u32> {
        self.launcher.pid()
    }

    /// Tries every feature in short-lived children of the launcher; takes some milliseconds and blocks.
    pub fn probe(&self, overrides: ProbeOverrides) -> Result<Probe> {
        let request = LauncherRequest::Probe { dirs: self.dirs.clone(), overrides };
        let mut conn = Conn::new(self.launcher.request(&request)?, MAX_FRAME);
        let frame = conn.receive_blocking(PROBE_LIMIT_MS).at("probe", "no answer from the launcher")?;
        let frame = frame.ok_or_else(|| RuntimeError::protocol("the launcher ended during the probe"))?;
        match frame.parse().map_err(|e| RuntimeError::protocol(e.to_string()))? {
            Reply::Probed(probe) => Ok(*probe),
            Reply::Failed(error) => Err(error),
            reply => Err(unexpected(&reply)),
        }
    }

    /// Launches the sandbox, or returns the living one of the same id.
    pub async fn launch(&self, spec: SandboxSpec) -> Result<Launched> {
        spec.validate()?;
        let id = spec.id.clone();
        let limit = if spec.seed.is_some() { SEEDED_LIMIT } else { LAUNCH_LIMIT };
        let request = LaunchRequest { dirs: self.dirs.clone(), spec, overrides: self.overrides };
        let socket = self.launcher.request(&LauncherRequest::Launch(Box::new(request)))?;
        let mut connection = Connection::new(socket)?;
        let answer = tokio::time::timeout(limit, connection.receive()).await.map_err(|_| no_answer())?;
        match answer {
            Ok((Reply::Launched(launched), _)) => {
                let dir = dirs::open_sandbox(&self.dirs, &id)?;
                Ok(Launched {
                    existing: false,
                    supervisor_pid: launched.supervisor_pid,
                    init_pid: launched.init_pid,
                    started_unix_ms: launched.started_unix_ms,
                    enforced: launched.enforced,
                    control: Control::new(id.clone(), dir, Some(connection)),
                    id,
                })
            }
            Ok((Reply::Existing, _)) => self.existing(&id).await,
            Ok((Reply::Failed(error), _)) => Err(error),
            Ok((reply, _)) => Err(unexpected(&reply)),
            Err(error) if error.kind == ErrorKind::NotRunning => {
                Err(RuntimeError::protocol("the supervisor ended before the sandbox was ready"))
            }
            Err(error) => Err(error),
        }
    }

    /// Gives a sandbox launched with `warm` the identity that `spec` says; everything else must be the same.
    /// Whatever the error, the warm one is spent.
    pub async fn adopt(&self, warm: Launched, spec: SandboxSpec) -> Result<Launched> {
        let (id, started_unix_ms) = (spec.id.clone(), crate::spec::unix_ms());
        let control = warm.control.adopt(spec).await?;
        Ok(Launched { id, started_unix_ms, control, ..warm })
    }

    async fn existing(&self, id: &str) -> Result<Launched> {
        let control = self.connect(id).await?;
        let status = control.status(false).await?;
        Ok(Launched {
            id: id.to_owned(),
            existing: true,
            supervisor_pid: status.supervisor_pid,
            init_pid: status.init_pid,
            started_unix_ms: status.started_unix_ms,
            enforced: status.enforced,
            control,
        })
    }

    /// Whether a supervisor holds this sandbox; two system calls, no question asked.
    pub fn is_alive(&self, id: &str) -> bool {
        validate_id(id).is_ok() && dirs::open_sandbox(&self.dirs, id).is_ok_and(|dir| dirs::is_alive(&dir))
    }

    /// When it ended, where nobody had asked for it and its supervisor lived to see it.
    pub fn ended_at(&self, id: &str) -> Option<SystemTime> {
        validate_id(id).ok().and_then(|()| ends::when(&self.dirs, id))
    }

    /// Reaches a living sandbox; one that is just being launched is waited for.
    pub async fn connect(&self, id: &str) -> Result<Control> {
        validate_id(id)?;
        let start = Instant::now();
        loop {
            let dir = dirs::open_sandbox(&self.dirs, id)?;
            match Connection::open(&dir, id).await {
                Ok(connection) => return Ok(Control::new(id.to_owned(), dir, Some(connection))),
                Err(error) if error.kind != ErrorKind::NotRunning => return Err(error),
                Err(error) if start.elapsed() > Duration::from_secs(10) || !dirs::is_alive(&dir) => {
                    return Err(error);
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    }

    /// Every sandbox directory, living or dead.
    pub fn list(&self) -> Result<Vec<Found>> {
        ends::forget_old(&self.dirs);
        dirs::list(&self.dirs)
    }

    /// Ends the sandbox and removes what is left of it. Doing it twice is the same as once.
    pub async fn stop(&self, id: &str) -> Result<CleanupReport> {
        validate_id(id)?;
        let report = self.stop_or_sweep(id).await?;
        if report.is_clean() {
            ends::forget(&self.dirs, id);
        }
        Ok(report)
    }

    async fn stop_or_sweep(&self, id: &str) -> Result<CleanupReport> {
        match self.ask_to_stop(id).await {
            Ok(report) if report.is_clean() => return Ok(report),
            Ok(_) | Err(_) => {}
        }
        // Not there, dead, or deaf: end what is left and sweep, off the executor because it may block.
        let (runtime, id) = (self.clone(), id.to_owned());
        let swept = tokio::task::spawn_blocking(move || {
            cleanup::kill_supervisor(&runtime.dirs, &id);
            runtime.sweep(&id)
        });
        swept.await.map_err(|_| RuntimeError::protocol("the sweep was cancelled"))?
    }

    async fn ask_to_stop(&self, id: &str) -> Result<CleanupReport> {
        let control = self.connect(id).await?;
        tokio::time::timeout(STOP_LIMIT, control.stop()).await.map_err(|_| no_answer())?
    }

    /// Removes the remains of a sandbox whose supervisor is dead.
    pub fn sweep(&self, id: &str) -> Result<CleanupReport> {
        validate_id(id)?;
        cleanup::sweep(&self.dirs, id)
    }
}
