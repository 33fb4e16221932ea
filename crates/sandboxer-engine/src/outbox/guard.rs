//! Where webhooks may go: to public addresses, and to private ones that were allowed by name. Checked when an endpoint is
//! made and again for each connection, so that a name that changes its mind gets nowhere.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};

const LONGEST_URL: usize = 2_048;
const HINT: &str = "SANDBOXER_WEBHOOK_ALLOW_PRIVATE names private networks that webhooks may reach";

/// Which private addresses webhooks may reach: none, some networks, or all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrivateTargets {
    all: bool,
    networks: Vec<Network>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u8,
}

impl FromStr for PrivateTargets {
    type Err = Error;

    /// `all`, or a comma-separated list of addresses and networks.
    fn from_str(text: &str) -> Result<Self> {
        let mut out = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part {
                "all" => out.all = true,
                part => out.networks.push(part.parse()?),
            }
        }
        Ok(out)
    }
}

impl FromStr for Network {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = || {
            Error::new(ErrorKind::InvalidInput, format!("`{}` is not a network", printable(text)))
                .with_hint("write addresses or networks such as `10.0.0.0/8,127.0.0.1`, or `all`")
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| invalid())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits <= most { Ok(Self { address, bits }) } else { Err(invalid()) }
    }
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.bits);
                shift == 32 || network.to_bits() >> shift == address.to_bits() >> shift
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let shift = 128 - u32::from(self.bits);
                shift == 128 || network.to_bits() >> shift == address.to_bits() >> shift
            }
            _ => false,
        }
    }
}

impl PrivateTargets {
    fn allows(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        is_public(address) || self.all || self.networks.iter().any(|network| network.contains(address))
    }

    /// Without TLS only to where the owner of the network said so: on the way to a public address everybody reads along.
    fn check(&self, address: IpAddr, plain: bool) -> Result<(), Forbidden> {
        match (self.allows(address), plain && is_public(address)) {
            (false, _) => Err(Forbidden::Private(address)),
            (true, true) => Err(Forbidden::Plain(address)),
            (true, false) => Ok(()),
        }
    }

    /// An endpoint's URL, as far as can be told without asking for its name.
    pub(super) fn check_url(&self, text: &str) -> Result<Url> {
        let invalid = |why: &str| {
            Error::new(ErrorKind::InvalidInput, format!("the URL of a webhook cannot be used: {why}"))
                .with_hint("it looks like `https://example.com/hooks/sandboxer`")
        };
        if text.len() > LONGEST_URL {
            return Err(invalid("it is too long"));
        }
        let url: Url = text.parse().map_err(|error| invalid(&format!("{error}")))?;
        match url.scheme() {
            "https" => {}
            "http" if self.all || !self.networks.is_empty() => {}
            "http" => return Err(invalid("it must be https").with_hint(HINT)),
            _ => return Err(invalid("it must be https")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("it must not contain credentials"));
        }
        if url.fragment().is_some() {
            return Err(invalid("it must not have a fragment"));
        }
        // A name is checked when it is resolved; an address never is.
        let host = url.host_str().unwrap_or_default();
        if host.is_empty() || url.port() == Some(0) {
            return Err(invalid("it names no host"));
        }
        if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse() {
            self.check(address, is_plain(&url)).map_err(Error::from)?;
        }
        Ok(url)
    }

    /// Whether the URL's name leads where webhooks may go, right now.
    pub(super) async fn check_name(&self, url: &Url) -> Result<()> {
        let host = url.host_str().unwrap_or_default();
        if host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok() {
            return Ok(());
        }
        let found = tokio::net::lookup_host((host, 0)).await.map_err(|source| {
            Error::new(ErrorKind::InvalidInput, format!("`{}` cannot be found", printable(host)))
                .with_source(source)
        })?;
        for address in found {
            self.check(address.ip(), is_plain(url)).map_err(Error::from)?;
        }
        Ok(())
    }
}

/// Whether what is sent there can be read on the way.
pub(super) fn is_plain(url: &Url) -> bool {
    url.scheme() == "http"
}

/// Resolves names for connections and refuses those that lead to an address that is not allowed.
pub(super) struct Guarded {
    pub(super) targets: PrivateTargets,
    /// For connections without TLS.
    pub(super) plain: bool,
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let (targets, plain) = (self.targets.clone(), self.plain);
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            // One bad address among good ones is a trap, not a choice.
            for address in &found {
                targets.check(address.ip(), plain)?;
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// An address that webhooks may not reach.
#[derive(Debug)]
enum Forbidden {
    Private(IpAddr),
    Plain(IpAddr),
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Private(address) => {
                write!(f, "{address} is a private address, and webhooks may not go there")
            }
            Self::Plain(address) => {
                write!(f, "{address} is a public address, and webhooks go there by https only")
            }
        }
    }
}

impl std::error::Error for Forbidden {}

impl From<Forbidden> for Error {
    fn from(forbidden: Forbidden) -> Self {
        let hint = match forbidden {
            Forbidden::Private(_) => HINT,
            Forbidden::Plain(_) => "write `https://`; plain http is for private networks that were allowed",
        };
        Self::new(ErrorKind::Refused, forbidden.to_string()).with_hint(hint)
    }
}

fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Everything that IANA lists as not globally reachable is not public.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = match (a, b, c) {
        // This network, private, loopback, link-local with the metadata services, carrier-grade NAT.
        (0 | 10 | 127, _, _) | (169, 254, _) | (192, 168, _) => true,
        (172, b, _) => (16..32).contains(&b),
        (100, b, _) => (64..128).contains(&b),
        // Protocol assignments, documentation, 6to4 relays, benchmarks.
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 51, 100) | (203, 0, 113) | (198, 18 | 19, _) => true,
        // Multicast, reserved, broadcast.
        (a, _, _) => a >= 224,
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let part = address.segments();
    let inner = |high: u16, low: u16| Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low));
    match part {
        // NAT64 and 6to4 lead to the IPv4 address inside.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_public_v4(inner(high, low)),
        [0x2002, high, low, ..] => is_public_v4(inner(high, low)),
        // Teredo, benchmarks, ORCHID and the rest of the protocol assignments; documentation twice.
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        // Only this eighth is given out to the public; loopback, local, link-local and multicast are outside of it.
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

#[cfg(test)]
mod tests;
