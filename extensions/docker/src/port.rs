//! Connections to the loopback of a container that has no other network.
//!
//! On the engine's own machine, and with the right to, a thread enters the container's network namespace and connects
//! there; the connection then belongs to us. Otherwise `nc` inside relays, if the image has one.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sandboxer_core::exec::ExecSession;
use sandboxer_core::extension::BoxDuplex;
use sandboxer_core::{Error, ErrorKind, Result};
use tokio::io::AsyncReadExt as _;

use crate::errors::gone;
use crate::exec::Place;
use crate::inside;
use crate::provision::{inspect, is_running};

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// 44 when nobody listens, 127 when there is nothing to connect with. The first line tells that the relay stands.
const RELAY: &str = include_str!("scripts/relay.sh");

pub(crate) async fn connect(place: &Place, port: u16) -> Result<BoxDuplex> {
    let state = inspect(&place.connected, &place.container).await?.filter(is_running);
    let Some(state) = state else { return Err(gone(&place.tag)) };
    let runtime = state.host_config.as_ref().and_then(|host| host.runtime.clone()).unwrap_or_default();
    let own_stack = !["", "runc", "crun"].contains(&runtime.as_str()) && !runtime.contains(".runc.");
    let pid = state.state.as_ref().and_then(|state| state.pid).filter(|pid| *pid > 0);
    if let Some(pid) = pid.filter(|_| !own_stack) {
        match from_outside(place, pid, port).await {
            Ok(connection) => return Ok(connection),
            Err(Failed::NoWayIn) => {}
            Err(Failed::Refused(error)) => return Err(error),
        }
    }
    relay(place, port).await
}

enum Failed {
    /// Not our machine, or not our right.
    NoWayIn,
    Refused(Error),
}

async fn from_outside(place: &Place, pid: i64, port: u16) -> Result<BoxDuplex, Failed> {
    let namespace = std::fs::File::open(format!("/proc/{pid}/ns/net")).map_err(|_| Failed::NoWayIn)?;
    // The number may have been given away since; it is the container's if the engine still says so.
    let same = inspect(&place.connected, &place.container).await.map_err(Failed::Refused)?;
    if same.and_then(|state| state.state).and_then(|state| state.pid) != Some(pid) {
        return Err(Failed::Refused(gone(&place.tag)));
    }
    let (send, receive) = tokio::sync::oneshot::channel();
    // A thread of its own: it stays in that namespace until it ends.
    std::thread::spawn(move || {
        let _ = send.send(connect_in(&namespace, port));
    });
    match receive.await {
        Ok(Ok(stream)) => {
            let stream = tokio::net::TcpStream::from_std(stream)
                .map_err(|error| Failed::Refused(closed(port, error)))?;
            Ok(Box::pin(stream))
        }
        Ok(Err(Step::Enter)) | Err(_) => Err(Failed::NoWayIn),
        Ok(Err(Step::Connect(error))) => Err(Failed::Refused(closed(port, error))),
    }
}

enum Step {
    Enter,
    Connect(std::io::Error),
}

fn connect_in(namespace: &std::fs::File, port: u16) -> Result<TcpStream, Step> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|_| Step::Enter)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT).map_err(Step::Connect)?;
    stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(Step::Connect)?;
    Ok(stream)
}

fn closed(port: u16, source: std::io::Error) -> Error {
    Error::new(ErrorKind::Unreachable, format!("nothing answers on port {port} of the sandbox"))
        .with_source(source)
        .with_hint("the program inside must listen on 127.0.0.1 or on every address")
}

async fn relay(place: &Place, port: u16) -> Result<BoxDuplex> {
    let mut launch = place.script(&place.user, RELAY, &[&port.to_string()]);
    launch.stdin = true;
    let mut session = place.start(launch).await?;
    let mut greeting = [0u8; 1];
    let heard =
        tokio::time::timeout(CONNECT_LIMIT + CONNECT_LIMIT, session.stdout.read_exact(&mut greeting)).await;
    if matches!(heard, Ok(Ok(_))) {
        return Ok(Box::pin(Relayed::new(session)));
    }
    let said = inside::capture(session).await?;
    match said.code {
        127 => Err(Error::unsupported(crate::ID, "ports of this sandbox")
            .with_hint("run the server as root on the engine's machine, or use an image that has `nc`")),
        _ => Err(closed(port, std::io::Error::from(std::io::ErrorKind::ConnectionRefused))),
    }
}

/// Both directions of a relay; it ends with the connection.
struct Relayed {
    input: sandboxer_core::exec::BoxWrite,
    output: sandboxer_core::exec::BoxRead,
    _control: std::sync::Arc<dyn sandboxer_core::exec::ExecControl>,
}

impl Relayed {
    fn new(session: ExecSession) -> Self {
        let input = session.stdin.unwrap_or_else(|| Box::pin(tokio::io::sink()));
        Self { input, output: session.stdout, _control: session.control }
    }
}

impl tokio::io::AsyncRead for Relayed {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        self.output.as_mut().poll_read(context, buffer)
    }
}

impl tokio::io::AsyncWrite for Relayed {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        data: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        self.input.as_mut().poll_write(context, data)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        self.input.as_mut().poll_flush(context)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        self.input.as_mut().poll_shutdown(context)
    }
}
