//! A connection to a port inside, as its caller sees it.

use super::connection::unexpected;
use super::control::{CALL_LIMIT, Control};
use crate::error::{AtStep as _, Result, RuntimeError};
use crate::wire::{Reply, Request};
use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;
use tokio::net::TcpStream;

impl Control {
    /// Connects to what listens on the sandbox's loopback, IPv4 first. The socket lives in the sandbox's network and
    /// is used from here directly.
    pub async fn connect(&self, port: u16) -> Result<TcpStream> {
        if port == 0 {
            return Err(RuntimeError::invalid("port 0 is no port"));
        }
        let refused = match self.connect_by(port, false).await {
            Err(error) if error.errno == Some(libc::ECONNREFUSED) => error,
            other => return other,
        };
        match self.connect_by(port, true).await {
            Ok(stream) => Ok(stream),
            // Also where the kernel has no IPv6: what IPv4 said counts.
            Err(_) => Err(nothing_listens(port, &refused)),
        }
    }

    async fn connect_by(&self, port: u16, ipv6: bool) -> Result<TcpStream> {
        let mut connection = self.connection().await?;
        let request = Request::Connect { port, ipv6 };
        let mut frame = match connection.call(&request, &[], Some(CALL_LIMIT)).await? {
            (Reply::Connected, frame) => frame,
            (reply, _) => return Err(unexpected(&reply)),
        };
        let socket =
            frame.fds.pop().ok_or_else(|| RuntimeError::protocol("the socket did not come along"))?;
        // It comes from inside, so it is looked at before it is used as one.
        if socket_type(&socket).at("port", "what came is no socket")? != SocketType::STREAM {
            return Err(RuntimeError::protocol("what came is no stream"));
        }
        let failed = "cannot use the connection";
        rustix::io::ioctl_fionbio(&socket, true).at("port", failed)?;
        let stream = TcpStream::from_std(socket.into()).at("port", failed)?;
        // Usually at once; a full queue of the listener makes it wait.
        let ready = tokio::time::timeout(CALL_LIMIT, stream.writable()).await;
        ready.map_err(|_| std::io::Error::from_raw_os_error(libc::ETIMEDOUT)).flatten().at("port", failed)?;
        match stream.take_error().at("port", failed)? {
            Some(error) => Err(error).at("port", format!("cannot connect to port {port} inside")),
            None => Ok(stream),
        }
    }
}

fn nothing_listens(port: u16, refused: &RuntimeError) -> RuntimeError {
    let message = format!("nothing inside listens on port {port}");
    RuntimeError { message, ..refused.clone() }
        .with_hint("start the program that listens first, on 127.0.0.1 or on all addresses")
}
