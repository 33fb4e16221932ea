//! Commands: each runs under the container's small init as its reaper, so that everything it starts stays in one tree.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bollard::models::ExecConfig;
use sandboxer_core::exec::{ExecControl, ExecOutcome, ExecSession, ExecSpec, TtySize};
use sandboxer_core::extension::Handle;
use sandboxer_core::{Error, ErrorKind, ExecId, Result};
use tokio::sync::{oneshot, watch};

use crate::client::Connected;
use crate::errors::{gone, map};
use crate::pump::{self, Pump};
use crate::signal::Killer;

/// Where the engine puts the init that `Init` asks for.
pub(crate) const INIT: &str = "/sbin/docker-init";
/// The variable that finds a command's init again.
pub(crate) const MARK: &str = "SANDBOXER_EXEC";
/// Gives a terminal its size before the command can look, then becomes the command.
const SIZED: &str = "stty rows \"$1\" cols \"$2\" 2>/dev/null; shift 2; exec \"$@\"";

/// Where commands go: one container and the user that it is for.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) connected: Connected,
    pub(crate) tag: String,
    pub(crate) container: String,
    pub(crate) user: String,
    /// The kernel inside lets an init be the reaper of what its command leaves behind; gVisor's does not.
    pub(crate) reaper: bool,
}

/// The folder that commands start in and relative paths are below.
pub(crate) const WORKSPACE: &str = "/workspace";

/// One command for the engine.
pub(crate) struct Launch {
    pub(crate) mark: String,
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<String>,
    pub(crate) user: String,
    pub(crate) cwd: String,
    pub(crate) timeout: Option<Duration>,
    pub(crate) tty: Option<TtySize>,
    pub(crate) stdin: bool,
}

impl Place {
    pub(crate) fn of(connected: &Connected, handle: &Handle) -> Result<Self> {
        let text = |key: &str| handle.data.get(key).and_then(|value| value.as_str()).map(str::to_owned);
        let reaper = handle.data.get("reaper").and_then(serde_json::Value::as_bool).unwrap_or(true);
        match (text("container"), text("user")) {
            (Some(container), Some(user)) => {
                Ok(Self { connected: connected.clone(), tag: handle.tag.clone(), container, user, reaper })
            }
            _ => Err(Error::new(ErrorKind::Internal, "a handle of ext.docker does not name its container")),
        }
    }

    pub(crate) fn launch(&self, spec: &ExecSpec) -> Launch {
        let cwd = match &spec.cwd {
            Some(cwd) if cwd.starts_with('/') => cwd.clone(),
            Some(cwd) => format!("{WORKSPACE}/{cwd}"),
            None => WORKSPACE.to_owned(),
        };
        Launch {
            mark: spec.exec_id.to_string(),
            argv: spec.argv.clone(),
            env: spec.env.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            user: spec.user.clone().unwrap_or_else(|| self.user.clone()),
            cwd,
            timeout: spec.timeout.map(|timeout| timeout.as_std()),
            tty: spec.tty,
            stdin: spec.stdin,
        }
    }

    /// A command of our own for `sh`, as this user.
    pub(crate) fn script(&self, user: &str, script: &str, args: &[&str]) -> Launch {
        let mut argv: Vec<String> = vec!["/bin/sh".into(), "-c".into(), script.into(), "sandboxer".into()];
        argv.extend(args.iter().map(|arg| (*arg).to_owned()));
        Launch {
            mark: ExecId::generate().to_string(),
            argv,
            env: Vec::new(),
            user: user.to_owned(),
            cwd: WORKSPACE.to_owned(),
            timeout: None,
            tty: None,
            stdin: false,
        }
    }

    /// What the engine is asked to run; the environment goes in the request's body and in no argument.
    pub(crate) fn config(&self, launch: &Launch, attached: bool) -> ExecConfig {
        let mut env = launch.env.clone();
        env.push(format!("{MARK}={}", launch.mark));
        if !self.reaper {
            // Otherwise the init complains about that in every command's output.
            env.push("TINI_VERBOSITY=0".into());
        }
        let mut cmd: Vec<String> = vec![INIT.into()];
        cmd.extend(self.reaper.then(|| "-s".to_owned()));
        cmd.push("--".into());
        if let Some(size) = launch.tty {
            let (rows, cols) = (size.rows.to_string(), size.cols.to_string());
            cmd.extend(["/bin/sh", "-c", SIZED, "sandboxer", &rows, &cols].map(String::from));
        }
        cmd.extend(launch.argv.iter().cloned());
        ExecConfig {
            attach_stdin: Some(attached && launch.stdin),
            attach_stdout: Some(attached),
            attach_stderr: Some(attached),
            tty: Some(launch.tty.is_some()),
            env: Some(env),
            cmd: Some(cmd),
            user: Some(launch.user.clone()),
            working_dir: Some(launch.cwd.clone()),
            ..ExecConfig::default()
        }
    }

    /// Registers a command with the engine.
    pub(crate) async fn create(&self, config: ExecConfig) -> Result<String> {
        match self.connected.api.create_exec(&self.container, config).await {
            Ok(created) => Ok(created.id),
            Err(error) => {
                let error = map(error, "prepare a command");
                Err(if error.kind() == ErrorKind::SandboxNotFound { gone(&self.tag) } else { error })
            }
        }
    }

    /// Starts a command and hands its streams over.
    pub(crate) async fn start(&self, launch: Launch) -> Result<ExecSession> {
        let id = self.create(self.config(&launch, true)).await?;
        let tty = launch.tty.is_some();
        let body = serde_json::json!({ "Detach": false, "Tty": tty }).to_string();
        let path = format!("/exec/{id}/start");
        let started = self.connected.hijack(&path, &body, "start a command").await;
        let stream = started.map_err(|error| match error.kind() {
            // The container ended between the two calls.
            ErrorKind::ExecNotFound | ErrorKind::SandboxNotFound | ErrorKind::Conflict => gone(&self.tag),
            _ => error,
        })?;
        let killer = Killer { place: self.clone(), user: launch.user, mark: launch.mark, nested: false };
        let (abandon, abandoned) = oneshot::channel();
        let (tell, outcome) = watch::channel(None);
        let (stdout_in, stdout) = tokio::io::duplex(pump::BUFFER);
        let (stderr_in, stderr) = tokio::io::duplex(pump::BUFFER);
        let pump = Pump {
            output: stream.output,
            stdout: stdout_in,
            stderr: (!tty).then_some(stderr_in),
            exec: id.clone(),
            killer: killer.clone(),
            timeout: launch.timeout,
            has_input: launch.stdin,
            abandoned,
            tell,
        };
        tokio::spawn(pump.run());
        let stdin = launch.stdin.then(|| {
            let (near, far) = tokio::io::duplex(pump::BUFFER);
            tokio::spawn(pump::pass_in(far, stream.input, outcome.clone()));
            Box::pin(near) as _
        });
        let control = Control { exec: id, tty, killer, outcome, _abandon: abandon };
        if let Some(size) = launch.tty {
            control.resize(size).await?;
        }
        Ok(ExecSession {
            stdin,
            stdout: Box::pin(stdout),
            stderr: (!tty).then(|| Box::pin(stderr) as _),
            control: Arc::new(control),
        })
    }
}

/// What can be done to a command. When the last of it is dropped, the pump ends the command.
struct Control {
    exec: String,
    tty: bool,
    killer: Killer,
    outcome: watch::Receiver<Option<Result<ExecOutcome>>>,
    _abandon: oneshot::Sender<()>,
}

#[async_trait]
impl ExecControl for Control {
    async fn wait(&self) -> Result<ExecOutcome> {
        let mut outcome = self.outcome.clone();
        let known = outcome.wait_for(Option::is_some).await.map(|known| known.clone());
        match known {
            Ok(Some(outcome)) => outcome,
            _ => Err(Error::new(ErrorKind::Internal, "nobody follows the command any more")),
        }
    }

    async fn signal(&self, signal: i32, whole_tree: bool) -> Result<()> {
        if self.outcome.borrow().is_some() {
            return Err(Error::new(ErrorKind::IllegalState, "the command has ended"));
        }
        self.killer.signal(signal, whole_tree).await
    }

    async fn resize(&self, size: TtySize) -> Result<()> {
        if !self.tty {
            return Err(Error::new(ErrorKind::IllegalState, "the command has no terminal"));
        }
        let options = bollard::exec::ResizeExecOptions { height: size.rows, width: size.cols };
        let mut pause = Duration::from_millis(5);
        // The engine answers before the process is there, and refuses a size until it is.
        loop {
            match self.killer.place.connected.api.resize_exec(&self.exec, options).await {
                Ok(()) => return Ok(()),
                Err(_) if self.outcome.borrow().is_some() => return Ok(()),
                Err(error) if pause > Duration::from_secs(1) => return Err(map(error, "resize a terminal")),
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause *= 2;
        }
    }
}
