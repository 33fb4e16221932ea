//! QEMU's control socket: one JSON object a line.

use std::path::Path;
use std::time::Duration;

use sandboxer_core::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

const LIMIT: Duration = Duration::from_secs(10);
/// An answer is short; more would be somebody else.
const MAX_LINE: u64 = 1 << 20;

pub(crate) struct Qmp {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl Qmp {
    /// Connects to the socket in a machine's folder.
    pub(crate) async fn connect(socket: &Path) -> Result<Self> {
        let folder = socket.parent().unwrap_or(Path::new("/"));
        let name = socket.file_name().unwrap_or_default();
        let gone = |source: std::io::Error| {
            Error::new(ErrorKind::BackendFailed, "QEMU does not answer on its control socket")
                .with_source(source)
        };
        // The path of a socket is bounded and that of the state folder is not, so it is reached through a descriptor.
        let dir = std::fs::File::open(folder).map_err(gone)?;
        let short = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&dir));
        let stream = within(UnixStream::connect(Path::new(&short).join(name))).await?.map_err(gone)?;
        drop(dir);
        let (reader, writer) = stream.into_split();
        let mut qmp = Self { reader: BufReader::new(reader), writer };
        qmp.line().await?;
        qmp.execute("qmp_capabilities", Value::Null).await?;
        Ok(qmp)
    }

    pub(crate) async fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let mut request = json!({ "execute": command });
        if !arguments.is_null() {
            request["arguments"] = arguments;
        }
        self.writer.write_all(format!("{request}\n").as_bytes()).await.map_err(broken)?;
        loop {
            let mut answer = self.line().await?;
            if let Some(error) = answer.get("error") {
                let said = error["desc"].as_str().unwrap_or("no reason given");
                return Err(Error::new(ErrorKind::BackendFailed, format!("QEMU refused {command}: {said}")));
            }
            // Everything else is an event.
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
        }
    }

    /// What the monitor for people says; for the few facts that have no command of their own.
    pub(crate) async fn monitor(&mut self, line: &str) -> Result<String> {
        let said = self.execute("human-monitor-command", json!({ "command-line": line })).await?;
        Ok(said.as_str().unwrap_or_default().to_owned())
    }

    /// `running`, `paused`, `guest-panicked` …
    pub(crate) async fn state(&mut self) -> Result<String> {
        let status = self.execute("query-status", Value::Null).await?;
        Ok(status["status"].as_str().unwrap_or_default().to_owned())
    }

    /// The port on this host that leads to the guest's SSH. QEMU took a free one, so nobody else can have it.
    pub(crate) async fn ssh_port(&mut self) -> Result<u16> {
        let said = self.monitor("info usernet").await?;
        forwarded_port(&said).ok_or_else(|| {
            Error::new(ErrorKind::BackendFailed, "QEMU does not say which port leads to the guest")
        })
    }

    async fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        let mut bounded = (&mut self.reader).take(MAX_LINE);
        let count = within(bounded.read_line(&mut line)).await?.map_err(broken)?;
        if count == 0 {
            return Err(Error::new(ErrorKind::BackendFailed, "QEMU closed its control socket"));
        }
        serde_json::from_str(&line).map_err(|source| {
            Error::new(ErrorKind::BackendFailed, "QEMU's answer cannot be read").with_source(source)
        })
    }
}

/// `  TCP[HOST_FORWARD]  11       127.0.0.1 44357       10.0.2.15    22     0     0`
fn forwarded_port(said: &str) -> Option<u16> {
    let line = said.lines().find(|line| line.contains("HOST_FORWARD"))?;
    let mut words = line.split_whitespace().skip_while(|word| *word != "127.0.0.1");
    words.nth(1)?.parse().ok().filter(|port| *port != 0)
}

fn broken(source: std::io::Error) -> Error {
    Error::new(ErrorKind::BackendFailed, "QEMU's control socket broke off").with_source(source)
}

async fn within<T>(work: impl Future<Output = T>) -> Result<T> {
    tokio::time::timeout(LIMIT, work)
        .await
        .map_err(|_| Error::new(ErrorKind::BackendFailed, "QEMU does not answer on its control socket"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_what_the_monitor_says() {
        let said = "Hub -1 (net):\r\n  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\r\n  \
                    TCP[ESTABLISHED]  12       127.0.0.1 1111       10.0.2.15    22     0     0\r\n  \
                    TCP[HOST_FORWARD]  11       127.0.0.1 44357       10.0.2.15    22     0     0\r\n";
        assert_eq!(forwarded_port(said), Some(44_357));
        assert_eq!(forwarded_port("nothing"), None);
    }
}
