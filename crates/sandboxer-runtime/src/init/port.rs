//! A connection to something that listens inside. The socket is made here, where the sandbox's network is, and goes
//! outside as a descriptor: no process stands between its two ends.

use crate::error::{AtStep as _, Result};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// Begins to connect to the port on the loopback. Never waits: init has everybody else to serve, so whoever gets the
/// socket finds out what became of it.
pub(super) fn open(port: u16, ipv6: bool) -> Result<OwnedFd> {
    let (family, address) = match ipv6 {
        true => (AddressFamily::INET6, IpAddr::V6(Ipv6Addr::LOCALHOST)),
        false => (AddressFamily::INET, IpAddr::V4(Ipv4Addr::LOCALHOST)),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        socket_with(family, SocketType::STREAM, flags, None).at("port", "cannot make a socket inside")?;
    match connect(&socket, &SocketAddr::new(address, port)) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error).at("port", format!("cannot connect to port {port} inside")),
    }
}
