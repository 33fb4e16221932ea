//! Who owns the other end of a loopback connection, asked of the kernel (`NETLINK_SOCK_DIAG`).
//!
//! The answer counts only for a socket that is established and that a process still holds: an orphan, a socket in
//! `TIME_WAIT` or a half-made one is reported as root's, whoever made it.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const IPPROTO_TCP: u8 = 6;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const TCP_ESTABLISHED: u8 = 1;
/// What the kernel shows for uids that our user namespace has no number for.
const OVERFLOW_UID: u32 = 65_534;

/// `nlmsghdr`, 16 bytes, then `inet_diag_req_v2`, 56 bytes.
const REQUEST_LENGTH: usize = 72;
/// Where `inet_diag_sockid` starts, in the request and in the answer.
const REQUEST_ID: usize = 24;
const ANSWER_ID: usize = 20;
/// Ports and addresses of `inet_diag_sockid`, without interface and cookie.
const TUPLE_LENGTH: usize = 36;
const ANSWER_STATE: usize = 17;
const ANSWER_UID: usize = 80;
const ANSWER_INODE: usize = 84;
const SEQUENCE: u32 = 1;

/// The uid behind the peer of an accepted connection, if it is certain.
///
/// The caller must see that its own end is still connected *after* this: only then was the pair of addresses its own.
pub(crate) fn owner_of_peer(local: SocketAddr, peer: SocketAddr) -> io::Result<Option<u32>> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Some(SOCK_DIAG),
    )?;
    // Connected to the kernel, so that nobody else's words are taken for its own.
    rustix::net::connect(&socket, &SocketAddrNetlink::new(0, 0))?;
    let request = request(local, peer);
    rustix::net::send(&socket, &request, SendFlags::empty())?;
    let mut answer = [0_u8; 512];
    // The kernel answers within the send; there is nothing to wait for.
    let (_, length) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    Ok(read_answer(&answer[..length.min(answer.len())], &request).filter(|uid| *uid != OVERFLOW_UID))
}

/// Asks for the socket whose own end is our peer and whose other end is ours.
fn request(local: SocketAddr, peer: SocketAddr) -> [u8; REQUEST_LENGTH] {
    let mut bytes = [0_u8; REQUEST_LENGTH];
    bytes[0..4].copy_from_slice(&(REQUEST_LENGTH as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    bytes[8..12].copy_from_slice(&SEQUENCE.to_ne_bytes());
    bytes[16] = if peer.is_ipv4() { AF_INET } else { AF_INET6 };
    bytes[17] = IPPROTO_TCP;
    bytes[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
    let id = &mut bytes[REQUEST_ID..];
    id[0..2].copy_from_slice(&peer.port().to_be_bytes());
    id[2..4].copy_from_slice(&local.port().to_be_bytes());
    write_address(&mut id[4..20], peer.ip());
    write_address(&mut id[20..36], local.ip());
    // No cookie.
    id[40..48].fill(0xff);
    bytes
}

fn write_address(place: &mut [u8], address: IpAddr) {
    match address {
        IpAddr::V4(address) => place[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => place[..16].copy_from_slice(&address.octets()),
    }
}

fn read_answer(answer: &[u8], request: &[u8; REQUEST_LENGTH]) -> Option<u32> {
    let number = |at: usize| answer.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let kind = answer.get(4..6)?;
    let same_tuple =
        answer.get(ANSWER_ID..ANSWER_ID + TUPLE_LENGTH)? == &request[REQUEST_ID..REQUEST_ID + TUPLE_LENGTH];
    let certain = kind == SOCK_DIAG_BY_FAMILY.to_ne_bytes()
        && number(8)? == SEQUENCE
        && same_tuple
        && *answer.get(ANSWER_STATE)? == TCP_ESTABLISHED
        && number(ANSWER_INODE)? != 0;
    if certain { number(ANSWER_UID) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn pair(address: &str) -> Option<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind(address).ok()?;
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        Some((client, server))
    }

    #[test]
    fn our_own_socket_is_ours() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Some((client, server)) = pair(address) else { continue };
            let owner = owner_of_peer(server.local_addr().unwrap(), server.peer_addr().unwrap()).unwrap();
            assert_eq!(owner, Some(rustix::process::getuid().as_raw()), "{address}");
            drop(client);
        }
    }

    #[test]
    fn an_orphan_is_nobodys() {
        let (client, server) = pair("127.0.0.1:0").unwrap();
        let (local, peer) = (server.local_addr().unwrap(), server.peer_addr().unwrap());
        drop(client);
        assert!(!matches!(owner_of_peer(local, peer), Ok(Some(_))));
    }

    #[test]
    fn a_listener_on_the_peers_port_is_not_the_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = SocketAddr::from(([127, 0, 0, 1], 1));
        assert!(!matches!(owner_of_peer(local, listener.local_addr().unwrap()), Ok(Some(_))));
    }

    #[test]
    fn short_and_strange_answers_are_refused() {
        let request = request(SocketAddr::from(([127, 0, 0, 1], 1)), SocketAddr::from(([127, 0, 0, 1], 2)));
        for length in 0..=88 {
            assert_eq!(read_answer(&vec![0xff; length], &request), None);
        }
    }
}
