//! The way to a host over SSH: the OpenSSH client holds one connection per host and gives sessions over it.

mod errors;
mod known;
mod master;
mod mux;
mod paths;
mod wish;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use sandboxer_core::extension::BoxDuplex;
use sandboxer_core::host::SshAccess;
use sandboxer_core::{Error, ErrorKind, Result};

use crate::transport::{Ended, Raw};
use master::Master;
use mux::Refused;
use wish::Wish;

/// A server takes ten sessions on one connection by default; beyond that, further connections are opened.
const CONNECTIONS: usize = 8;
/// A session that does not come in this time will not come.
const OPEN_LIMIT: Duration = Duration::from_secs(20);
/// How long to wait for a session when every connection is full.
const BUSY_LIMIT: Duration = Duration::from_secs(30);

/// One host's connections.
pub(crate) struct Ssh {
    masters: Vec<Master>,
    name: String,
}

impl Ssh {
    pub(crate) fn new(name: &str, access: &SshAccess, state_dir: &Path) -> Result<Self> {
        let masters =
            (0..CONNECTIONS).map(|slot| Master::new(name, access, state_dir, slot)).collect::<Result<_>>()?;
        Ok(Self { masters, name: name.to_owned() })
    }

    /// A connection, made if there is none.
    pub(crate) async fn connect(&self) -> Result<()> {
        self.masters[0].client().await.map(drop)
    }

    /// Ends the connections; commands that still run over them are ended by their watchers.
    pub(crate) async fn disconnect(&self) {
        for master in &self.masters {
            master.close().await;
        }
    }

    /// A session that runs the bootstrap program.
    pub(crate) async fn open(&self) -> Result<Raw> {
        self.obtain(wish::Shell).await
    }

    /// A session with a terminal: the descriptor is that of a terminal of ours, whose modes and size go along. Also the
    /// process that holds the connection, which has to be told when the size changes.
    pub(crate) async fn open_tty(&self, command: &str, terminal: OwnedFd) -> Result<(Ended, u32)> {
        self.obtain(wish::Terminal { command, terminal }).await
    }

    /// A connection to a port of this address, as seen from the host.
    pub(crate) async fn forward(&self, address: std::net::IpAddr, port: u16) -> Result<BoxDuplex> {
        self.obtain(wish::Port(address, port)).await
    }

    /// Finds a connection that takes one more session.
    async fn obtain<W: Wish>(&self, wish: W) -> Result<W::Gives> {
        let deadline = tokio::time::Instant::now() + BUSY_LIMIT;
        loop {
            for master in &self.masters {
                // The connection may end between being found and being used; then it is made anew, once.
                for last in [false, true] {
                    let client = master.client().await?;
                    match tokio::time::timeout(OPEN_LIMIT, wish.ask(client, &self.name)).await {
                        Ok(Ok(done)) => return Ok(done),
                        Ok(Err(Refused::Full)) => break,
                        Ok(Err(Refused::Port(reason))) => return Err(no_listener(&reason)),
                        Ok(Err(Refused::Broken(source))) if last => {
                            return Err(lost(&self.name).with_source(source));
                        }
                        Ok(Err(Refused::Broken(_))) => {}
                        Err(_) => {
                            master.close().await;
                            return Err(Error::new(
                                ErrorKind::Unreachable,
                                format!("{} does not answer any more", self.name),
                            ));
                        }
                    }
                }
            }
            if tokio::time::Instant::now() > deadline {
                return Err(Error::new(
                    ErrorKind::RateLimited,
                    format!("{} takes no further session on {CONNECTIONS} connections", self.name),
                )
                .with_hint("raise MaxSessions in its sshd_config, or run fewer commands at once"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn lost(name: &str) -> Error {
    Error::new(ErrorKind::Unreachable, format!("the connection to {name} was lost"))
        .with_hint("the command was ended on the host as far as it can be reached; try again")
}

fn no_listener(reason: &str) -> Error {
    Error::new(ErrorKind::Unreachable, format!("nothing answers on that port: {reason}"))
        .with_hint("is something listening on the host's loopback?")
}
