//! What can be had over a connection: a shell, a terminal, a port.

use std::os::fd::OwnedFd;

use sandboxer_core::extension::BoxDuplex;
use tokio::net::unix::pipe;

use super::lost;
use super::mux::{Client, Forwarded, Refused, Session};
use crate::transport::{Ended, Raw};

/// Something that one session gives. It may be asked for on one connection after another.
pub(super) trait Wish: Send + Sync {
    type Gives: Send;

    fn ask(&self, client: Client, host: &str) -> impl Future<Output = Result<Self::Gives, Refused>> + Send;
}

pub(super) struct Shell;

impl Wish for Shell {
    type Gives = Raw;

    async fn ask(&self, client: Client, host: &str) -> Result<Raw, Refused> {
        let (stdin_there, stdin) = pipe_in()?;
        let (stdout, stdout_there) = pipe_out()?;
        let (stderr, stderr_there) = pipe_out()?;
        let command = crate::bootstrap::remote_command();
        let session = client.session(&command, None, [stdin_there, stdout_there, stderr_there]).await?;
        Ok(Raw {
            stdin: Box::pin(stdin),
            stdout: Box::pin(stdout),
            stderr: Box::pin(stderr),
            ended: ended(session, host),
        })
    }
}

pub(super) struct Terminal<'a> {
    pub(super) command: &'a str,
    pub(super) terminal: OwnedFd,
}

impl Wish for Terminal<'_> {
    type Gives = (Ended, u32);

    async fn ask(&self, mut client: Client, host: &str) -> Result<Self::Gives, Refused> {
        let copy = || self.terminal.try_clone().map_err(Refused::io);
        let pid = client.pid().await?;
        let session =
            client.session(self.command, Some("xterm-256color"), [copy()?, copy()?, copy()?]).await?;
        Ok((ended(session, host), pid))
    }
}

pub(super) struct Port(pub(super) std::net::IpAddr, pub(super) u16);

impl Wish for Port {
    type Gives = BoxDuplex;

    async fn ask(&self, client: Client, _host: &str) -> Result<BoxDuplex, Refused> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(Refused::io)?;
        ours.set_nonblocking(true).map_err(Refused::io)?;
        let stream = tokio::net::UnixStream::from_std(ours).map_err(Refused::io)?;
        let theirs = OwnedFd::from(theirs);
        let copy = theirs.try_clone().map_err(Refused::io)?;
        let session = client.forward(&self.0.to_string(), self.1, [copy, theirs]).await?;
        Ok(Box::pin(Forwarded::new(stream, session)))
    }
}

fn ended(session: Session, host: &str) -> Ended {
    let host = host.to_owned();
    Box::pin(async move { session.ended().await.map_err(|_| lost(&host)) })
}

fn pipe_in() -> Result<(OwnedFd, pipe::Sender), Refused> {
    let (read, write) = std::io::pipe().map_err(Refused::io)?;
    let write = pipe::Sender::from_owned_fd(write.into()).map_err(Refused::io)?;
    Ok((read.into(), write))
}

fn pipe_out() -> Result<(pipe::Receiver, OwnedFd), Refused> {
    let (read, write) = std::io::pipe().map_err(Refused::io)?;
    let read = pipe::Receiver::from_owned_fd(read.into()).map_err(Refused::io)?;
    Ok((read, write.into()))
}
