//! Commands in the sandbox's directory.

use std::sync::Arc;
use std::time::Duration;

use sandboxer_core::exec::{ExecSession, ExecSpec};
use sandboxer_core::{Error, Result};
use sandboxer_remote::{Command, Stdin};

use crate::native::Inside;
use crate::sandbox::{MARKER, Sandbox};

pub(crate) async fn start(sandbox: &Sandbox, spec: ExecSpec) -> Result<ExecSession> {
    if spec.user.is_some() {
        return Err(Error::unsupported(crate::ID, "running a command as another user"));
    }
    let mut command = Command::new(spec.argv)
        .envs(&sandbox.data.variables)
        .envs(spec.env)
        .env(MARKER, &sandbox.tag)
        .cwd(sandbox.directory(spec.cwd.as_deref()))
        .stdin(if spec.stdin { Stdin::Piped } else { Stdin::Null });
    if sandbox.data.native.is_none() {
        command = command.guarded_by(&sandbox.data.dir);
    }
    if let Some(timeout) = spec.timeout {
        command = command.timeout(Duration::from_millis(timeout.as_millis()));
    }
    if let Some(size) = spec.tty {
        command = command.tty(size);
    }
    let mut session = match sandbox.shell().start(command).await {
        Ok(session) => session,
        Err(error) => return Err(sandbox.explain(error).await),
    };
    if let Some(native) = sandbox.data.native.clone() {
        session.control = Arc::new(Inside { control: session.control, sandbox: sandbox.clone(), native });
    }
    Ok(session)
}
