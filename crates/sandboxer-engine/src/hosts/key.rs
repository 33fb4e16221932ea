//! Public keys of SSH hosts and their fingerprints.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};
use sha2::{Digest as _, Sha256};

/// A host shows a handful; more is not a host.
pub(super) const MOST_KEYS: usize = 16;
const LONGEST: usize = 8_192;
const KINDS: [&str; 7] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

/// One public key, as `ssh-ed25519 AAAA…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PublicKey {
    text: String,
    fingerprint: String,
}

impl PublicKey {
    /// From `type base64 [comment]`. The type inside the blob must be the one outside.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let refuse = |why: &str| {
            Error::new(ErrorKind::InvalidInput, format!("`{}` is not a host key: {why}", printable(text)))
                .with_hint("write it as in a file of /etc/ssh/ssh_host_*_key.pub: `ssh-ed25519 AAAA…`")
        };
        if text.len() > LONGEST {
            return Err(refuse("it is too long"));
        }
        let mut words = text.split_ascii_whitespace();
        let (kind, body) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if !KINDS.contains(&kind) {
            return Err(refuse("its type is not known"));
        }
        let blob = STANDARD.decode(body).map_err(|_| refuse("it is not base64"))?;
        let inner = blob.get(..4).and_then(|length| length.try_into().ok()).map(u32::from_be_bytes);
        let named = inner.and_then(|length| blob.get(4..)?.get(..length as usize));
        if named != Some(kind.as_bytes()) {
            return Err(refuse("its content is of another type"));
        }
        let fingerprint = format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(&blob)));
        Ok(Self { text: format!("{kind} {body}"), fingerprint })
    }

    pub(super) fn kind(&self) -> &str {
        self.text.split(' ').next().unwrap_or_default()
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// `SHA256:…`, as ssh and ssh-keygen show it.
    pub(super) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

/// A fingerprint as somebody wrote it, or why it cannot be one.
pub(super) fn fingerprint(text: &str) -> Result<String> {
    let text = text.trim();
    let body = text.strip_prefix("SHA256:").map(|body| body.trim_end_matches('='));
    let is_hash = |body: &&str| STANDARD_NO_PAD.decode(body).is_ok_and(|hash| hash.len() == 32);
    body.filter(is_hash).map(|body| format!("SHA256:{body}")).ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, format!("`{}` is not a fingerprint", printable(text))).with_hint(
            "`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the host shows it as `SHA256:…`",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ5GUBGGxKm0j4rfEFmBRPYTHB7XFP9SCXLaTG8SIyzC";

    #[test]
    fn a_key_is_read_and_its_comment_dropped() {
        let key = PublicKey::parse(&format!("{KEY} root@host")).unwrap();
        assert_eq!((key.text(), key.kind()), (KEY, "ssh-ed25519"));
        assert!(fingerprint(key.fingerprint()).is_ok());
        assert_eq!(key.fingerprint().len(), "SHA256:".len() + 43);
    }

    #[test]
    fn anything_else_is_refused() {
        let swapped = KEY.replacen("ssh-ed25519", "ssh-rsa", 1);
        for text in ["", "ssh-ed25519", "ssh-ed25519 ???", "-oProxyCommand=x AAAA", "ssh-dss AAAA", &swapped]
        {
            assert_eq!(PublicKey::parse(text).unwrap_err().kind(), ErrorKind::InvalidInput, "{text}");
        }
        for text in ["", "MD5:aa:bb", "SHA256:", "SHA256:short", "sha256:AAAA"] {
            assert_eq!(fingerprint(text).unwrap_err().kind(), ErrorKind::InvalidInput, "{text}");
        }
    }
}
