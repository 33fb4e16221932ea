//! The way to the machine that we are on: a shell with pipes.

use std::process::Stdio;

use sandboxer_core::{Error, ErrorKind, Result};
use tokio::process::Command;

use std::os::fd::OwnedFd;

use crate::bootstrap;
use crate::transport::{Ended, Raw};

pub(crate) fn open() -> Result<Raw> {
    let broken =
        |source| Error::new(ErrorKind::BackendFailed, "/bin/sh cannot be started").with_source(source);
    let mut child = Command::new("/bin/sh")
        .arg("-c")
        .arg(bootstrap::program())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // The watcher knows what belongs to the command by its group; and Ctrl-C is for us to pass on.
        .process_group(0)
        .spawn()
        .map_err(broken)?;
    let missing = || Error::new(ErrorKind::Internal, "a shell has no pipes");
    let stdin = child.stdin.take().ok_or_else(missing)?;
    let stdout = child.stdout.take().ok_or_else(missing)?;
    let stderr = child.stderr.take().ok_or_else(missing)?;
    Ok(Raw {
        stdin: Box::pin(stdin),
        stdout: Box::pin(stdout),
        stderr: Box::pin(stderr),
        // The shell is never killed: it ends with its command, and its watcher sees to that.
        ended: Box::pin(async move { child.wait().await.map(|status| status.code()).map_err(broken) }),
    })
}

/// A shell whose controlling terminal this is.
pub(crate) fn open_tty(nonce: &str, terminal: OwnedFd) -> Result<Ended> {
    let broken = |source| {
        Error::new(ErrorKind::BackendFailed, "no shell can be started in a terminal")
            .with_source(source)
            .with_hint("install util-linux, for `setsid`")
    };
    let copy = || terminal.try_clone().map(Stdio::from).map_err(broken);
    let mut child = Command::new("setsid")
        .args(["-c", "-w", "/bin/sh", "-c"])
        .arg(bootstrap::terminal_program())
        .arg(nonce)
        .stdin(copy()?)
        .stdout(copy()?)
        .stderr(copy()?)
        .spawn()
        .map_err(broken)?;
    Ok(Box::pin(async move { child.wait().await.map(|status| status.code()).map_err(broken) }))
}
