//! Pinned host keys: the file that the client compares with, and fingerprints for people.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sandboxer_core::host::SshAccess;
use sandboxer_core::{Error, ErrorKind, Result};
use sha2::{Digest as _, Sha256};

/// The name under which the keys are pinned, whatever the address is.
pub(super) const ALIAS: &str = "pinned";

/// The known-hosts file with these keys and no other.
pub(super) fn file(access: &SshAccess) -> Result<String> {
    let mut out = String::new();
    for key in &access.host_keys {
        let mut words = key.split_whitespace();
        match (words.next(), words.next()) {
            (Some(kind), Some(blob)) if !kind.starts_with('@') && STANDARD.decode(blob).is_ok() => {
                out += &format!("{ALIAS} {kind} {blob}\n");
            }
            _ => {
                let key = sandboxer_core::suggest::printable(key);
                return Err(Error::new(ErrorKind::InvalidInput, format!("`{key}` is not a public key")));
            }
        }
    }
    if out.is_empty() {
        return Err(Error::new(ErrorKind::HostKeyRefused, "no key of the host is pinned")
            .with_hint("add the host again and confirm its key"));
    }
    Ok(out)
}

/// `SHA256:…`, as the client shows it.
pub(super) fn fingerprint(key: &str) -> Option<String> {
    let blob = STANDARD.decode(key.split_whitespace().nth(1)?).ok()?;
    Some(format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(blob))))
}
