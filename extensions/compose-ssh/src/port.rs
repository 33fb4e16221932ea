//! Ports: which there are, at which addresses, and connections to them.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use sandboxer_core::exec::{BoxRead, BoxWrite, ExecControl};
use sandboxer_core::extension::{BoxDuplex, Handle, PublishedPort, Reachability};
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::{Command, Stdin};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use crate::inspect::{Container, containers};
use crate::provision::Data;
use crate::site::Site;

const CONNECT_LIMIT: Duration = Duration::from_secs(15);

/// Runs inside and joins its own streams to a port on the loopback there. Says `ok` on stderr first, `closed` when nobody
/// listens, `none` when the image has no program for it.
const RELAY: &str = r#"
port=$1; hex=$(printf '%04X' "$port"); open=
for f in /proc/net/tcp /proc/net/tcp6; do
  while read -r n local remote state rest; do
    case "$local" in *":$hex") [ "$state" = 0A ] && open=1;; esac
  done 2>/dev/null <$f
done
[ "$open" ] || { echo closed >&2; exit 0; }
go() { echo ok >&2; exec "$@" 2>/dev/null; }
if command -v socat >/dev/null 2>&1; then go socat - "TCP:127.0.0.1:$port"; fi
if command -v nc >/dev/null 2>&1; then go nc 127.0.0.1 "$port"; fi
if command -v busybox >/dev/null 2>&1; then go busybox nc 127.0.0.1 "$port"; fi
if command -v python3 >/dev/null 2>&1; then go python3 -c '
import os, socket, sys, threading
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def up():
    while True:
        d = os.read(0, 65536)
        if not d: break
        s.sendall(d)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while True:
    d = s.recv(65536)
    if not d: break
    while d: d = d[os.write(1, d):]
' "$port"; fi
if command -v bash >/dev/null 2>&1; then go bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$1"; cat <&3 & cat >&3; wait' bash "$port"; fi
echo none >&2
"#;

/// Where the stack is reached, read from the engine now.
pub(crate) async fn reachability(site: &Site, handle: &Handle) -> Result<Reachability> {
    let data = Data::of(handle)?;
    let all = containers(site, &handle.tag).await?;
    if all.is_empty() {
        return Err(Error::new(ErrorKind::SandboxNotFound, format!("{} is gone", handle.tag)));
    }
    let running = all.iter().filter(|one| one.is_running()).count();
    let ports = data
        .ports
        .iter()
        .filter_map(|wanted| {
            let container = all.iter().find(|one| one.service() == wanted.service && one.is_running())?;
            let address = address(container, wanted.port)?;
            Some(PublishedPort { service: Some(wanted.service.clone()), port: wanted.port, address })
        })
        .collect();
    Ok(Reachability {
        method: "compose".into(),
        endpoint: format!("{}/{}", handle.host, handle.tag),
        probe: format!("{running} of {} containers are running and every health check passes", all.len()),
        ports,
    })
}

/// The published address; on an internal network, where nothing is published, the container's own.
fn address(container: &Container, port: u16) -> Option<String> {
    if container.host_config.network_mode == "host" {
        return Some(format!("127.0.0.1:{port}"));
    }
    container.published(port).or_else(|| container.address().map(|address| format!("{address}:{port}")))
}

/// A connection to a port inside: of the service that publishes it, otherwise of the main one.
pub(crate) async fn connect(site: &Site, handle: &Handle, port: u16) -> Result<BoxDuplex> {
    let data = Data::of(handle)?;
    let container = match data.ports.iter().find(|one| one.port == port && one.service != data.service) {
        Some(other) if !data.ports.iter().any(|one| one.port == port && one.service == data.service) => {
            let all = containers(site, &handle.tag).await?;
            let found = all.iter().find(|one| one.service() == other.service && one.is_running());
            found.map(|one| one.plain_name().to_owned()).ok_or_else(|| closed(port))?
        }
        _ => data.container.clone(),
    };
    crate::exec::must_run(site, handle, &container).await?;
    match tokio::time::timeout(CONNECT_LIMIT, relay(site, &container, port)).await {
        Ok(Ok(Some(connection))) => Ok(connection),
        Ok(Ok(None)) => direct(site, handle, &container, port).await,
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::new(ErrorKind::Timeout, format!("no connection to port {port} in time"))),
    }
}

/// Through a program of the image; `None` when it has none.
async fn relay(site: &Site, container: &str, port: u16) -> Result<Option<BoxDuplex>> {
    let port_text = port.to_string();
    let argv = ["docker", "exec", "-i", container, "/bin/sh", "-c", RELAY, "sh", &port_text];
    let mut session = site.remote.start(site.with_engine(Command::new(argv)).stdin(Stdin::Piped)).await?;
    let mut stderr = session.stderr.take().unwrap_or_else(|| Box::pin(tokio::io::empty()));
    let mut word = Vec::new();
    let mut byte = [0];
    while word.len() < 200 && matches!(stderr.read(&mut byte).await, Ok(1)) && byte[0] != b'\n' {
        word.push(byte[0]);
    }
    match (word.as_slice(), session.stdin) {
        (b"ok", Some(stdin)) => {
            tokio::spawn(async move {
                let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
            });
            Ok(Some(Box::pin(Relay { read: session.stdout, write: stdin, _control: session.control })))
        }
        (b"closed", _) => Err(closed(port)),
        // `none`, or an image without a shell.
        _ => Ok(None),
    }
}

/// From the host to the container's own address.
async fn direct(site: &Site, handle: &Handle, container: &str, port: u16) -> Result<BoxDuplex> {
    let all = containers(site, &handle.tag).await?;
    let container = all.iter().find(|one| one.plain_name() == container).ok_or_else(|| closed(port))?;
    let address = container.address().and_then(|address| address.parse().ok()).ok_or_else(|| closed(port))?;
    // An engine elsewhere has its networks elsewhere: the address would be somebody else's.
    if site.docker_host().is_some_and(|host| !host.ends_with("/run/docker.sock")) {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("the image of `{}` has no program that connects to port {port}", container.service()),
        )
        .with_hint("socat, nc, busybox, python3 or bash in the image will do"));
    }
    match tokio::time::timeout(CONNECT_LIMIT, site.remote.forward_to(address, port)).await {
        Ok(connection) => connection,
        Err(_) => Err(closed(port)),
    }
}

fn closed(port: u16) -> Error {
    Error::new(ErrorKind::Unreachable, format!("nothing listens on port {port}"))
}

/// The streams of a relay as one connection. Dropping it ends the relay.
struct Relay {
    read: BoxRead,
    write: BoxWrite,
    _control: std::sync::Arc<dyn ExecControl>,
}

impl AsyncRead for Relay {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        self.read.as_mut().poll_read(cx, buf)
    }
}

impl AsyncWrite for Relay {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.write.as_mut().poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.write.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.write.as_mut().poll_shutdown(cx)
    }
}
