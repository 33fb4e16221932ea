//! One table from the client's last words to our kinds.

use sandboxer_core::host::SshAccess;
use sandboxer_core::{Error, ErrorKind, Retry};

use super::known::fingerprint;

/// What the client means when it cannot connect. Its messages are English in the C locale and have been stable for years.
pub(super) fn classify(name: &str, access: &SshAccess, words: &str) -> Error {
    let has = |needles: &[&str]| needles.iter().any(|needle| words.contains(needle));
    let endpoint = format!("{}@{}:{}", access.user, access.address, access.port);
    let error = if has(&[
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "Host key verification failed",
        "host key is known for",
    ]) {
        host_key(name, access, words)
    } else if has(&[
        "Permission denied",
        "Too many authentication failures",
        "No supported authentication methods",
    ]) {
        let offered = match &access.identity_file {
            Some(file) => format!("with the key {file}"),
            None => "with the agent's and the default keys".into(),
        };
        Error::new(ErrorKind::Denied, format!("{name} does not let {} in {offered}", access.user)).with_hint(
            format!(
                "put the public key into ~{}/.ssh/authorized_keys on {}, or name another identity file",
                access.user, access.address
            ),
        )
    } else if has(&["Could not resolve hostname"]) {
        Error::new(
            ErrorKind::Unreachable,
            format!("{name} cannot be reached: there is no address for {}", access.address),
        )
        .with_retry(Retry::Temporary)
    } else if has(&[
        "Connection refused",
        "timed out",
        "No route to host",
        "Network is unreachable",
        "Connection reset",
        "Connection closed",
        "Host is down",
        "not responding",
        "Broken pipe",
        "kex_exchange_identification",
    ]) {
        Error::new(
            ErrorKind::Unreachable,
            format!("{name} cannot be reached at {}:{}", access.address, access.port),
        )
        .with_hint("is the machine up, and does its SSH server listen there?")
    } else {
        Error::new(ErrorKind::Unreachable, format!("there is no SSH connection to {name}"))
    };
    let error = error.with_context("host", name).with_context("endpoint", endpoint);
    match last_line(words) {
        Some(line) => error.with_source(std::io::Error::other(line)),
        None => error,
    }
}

fn host_key(name: &str, access: &SshAccess, words: &str) -> Error {
    let pinned = access.host_keys.iter().filter_map(|key| fingerprint(key)).collect::<Vec<_>>().join(", ");
    let shown = words
        .split_whitespace()
        .find(|word| word.starts_with("SHA256:"))
        .map(|word| word.trim_end_matches('.'));
    let message = match shown {
        Some(shown) => format!("{name} shows the host key {shown}, but {pinned} is pinned"),
        None => format!("{name} shows a host key of a kind that is not pinned; pinned is {pinned}"),
    };
    Error::new(ErrorKind::HostKeyRefused, message).with_hint(
        "somebody may be in between; if the machine really has a new key, remove the host and add it again",
    )
}

fn last_line(words: &str) -> Option<String> {
    let line = words.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).take(400).collect())
}
