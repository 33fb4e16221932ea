//! `ssh://user@address:port`, taken apart and bounded: these words become arguments of ssh.

use std::net::Ipv6Addr;

use sandboxer_core::host::SshAccess;
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};

const DEFAULT_PORT: u16 = 22;

/// Where and as whom, with no key yet.
pub(super) fn parse(text: &str) -> Result<SshAccess> {
    let refuse = |why: &str| {
        Error::new(
            ErrorKind::InvalidInput,
            format!("`{}` is not the address of a host: {why}", printable(text)),
        )
        .with_hint("write it as `ssh://user@address:22`")
    };
    let rest = text.strip_prefix("ssh://").ok_or_else(|| refuse("it does not begin with `ssh://`"))?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (user, place) = rest.split_once('@').ok_or_else(|| refuse("it names no user"))?;
    if !is_user(user) {
        return Err(refuse("the user is not a user name"));
    }
    let (address, port) = match place.strip_prefix('[') {
        Some(bracketed) => {
            let (address, rest) = bracketed.split_once(']').ok_or_else(|| refuse("a `]` is missing"))?;
            address.parse::<Ipv6Addr>().map_err(|_| refuse("what is in `[]` is not an IPv6 address"))?;
            (address, if rest.is_empty() { None } else { Some(rest.strip_prefix(':').unwrap_or("?")) })
        }
        None => match place.split_once(':') {
            Some((address, port)) => (address, Some(port)),
            None => (place, None),
        },
    };
    if !address.contains(':') && !is_host(address) {
        return Err(refuse("the address is neither a name nor a number"));
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => port
            .parse::<u16>()
            .ok()
            .filter(|number| *number > 0 && port.bytes().all(|byte| byte.is_ascii_digit()))
            .ok_or_else(|| refuse("the port is not a number from 1 to 65535"))?,
    };
    Ok(SshAccess {
        address: address.to_owned(),
        port,
        user: user.to_owned(),
        identity_file: None,
        host_keys: Vec::new(),
    })
}

/// The same in its written form.
pub(super) fn write(ssh: &SshAccess) -> String {
    let bracketed = ssh.address.contains(':');
    let address = if bracketed { format!("[{}]", ssh.address) } else { ssh.address.clone() };
    format!("ssh://{}@{address}:{}", ssh.user, ssh.port)
}

/// Nothing that ssh could take for an option, and nothing that it expands.
fn is_user(user: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=64).contains(&user.len()) && user.chars().all(plain) && !user.starts_with(['-', '.'])
}

fn is_host(address: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=253).contains(&address.len())
        && address.chars().all(plain)
        && address.starts_with(|c: char| c.is_ascii_alphanumeric())
        && address.split('.').all(|part| part.len() <= 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_back() {
        for (text, user, address, port) in [
            ("ssh://ops@10.0.0.4:2222", "ops", "10.0.0.4", 2222),
            ("ssh://a.b-c_d@host-1.example.org", "a.b-c_d", "host-1.example.org", 22),
            ("ssh://root@[fd00::1]:22", "root", "fd00::1", 22),
        ] {
            let ssh = parse(text).unwrap();
            assert_eq!((ssh.user.as_str(), ssh.address.as_str(), ssh.port), (user, address, port));
            assert_eq!(parse(&write(&ssh)).unwrap(), ssh);
        }
    }

    #[test]
    fn what_ssh_could_misread_is_refused() {
        let long = format!("ssh://u@{}", "a".repeat(254));
        for text in [
            "",
            "host",
            "http://u@h",
            "ssh://h",
            "ssh://@h",
            "ssh://u@",
            "ssh://-oProxyCommand=x@h",
            "ssh://u@-oProxyCommand=x",
            "ssh://u@h:0",
            "ssh://u@h:99999",
            "ssh://u@h:+22",
            "ssh://u@h:",
            "ssh://u@h x",
            "ssh://u@h;id",
            "ssh://u@$(id)",
            "ssh://u u@h",
            "ssh://u@[nonsense]:22",
            "ssh://u@[::1",
            "ssh://u@[::1]22",
            "ssh://u@h/path",
            "ssh://u:pass@h",
            "ssh://u@%h",
            &long,
        ] {
            assert_eq!(parse(text).map(drop).unwrap_err().kind(), ErrorKind::InvalidInput, "{text}");
        }
    }
}
