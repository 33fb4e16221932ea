//! Asks a host which keys it shows. What it shows is a claim: somebody has to confirm it.

use std::process::Stdio;
use std::time::Duration;

use sandboxer_core::host::SshAccess;
use sandboxer_core::{Error, ErrorKind, Result};
use tokio::process::Command;

use super::key::{MOST_KEYS, PublicKey};

/// How long a host may take for one of its keys, and for all of them.
const PATIENCE_SECONDS: &str = "5";
const PATIENCE: Duration = Duration::from_secs(15);

/// The keys that the host offers now, each once.
pub(super) async fn offered(ssh: &SshAccess) -> Result<Vec<PublicKey>> {
    let place = super::address::write(ssh);
    let mut command = Command::new("ssh-keyscan");
    command.args([
        "-T",
        PATIENCE_SECONDS,
        "-t",
        "ed25519,ecdsa,rsa",
        "-p",
        &ssh.port.to_string(),
        "--",
        &ssh.address,
    ]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let silent = || {
        Error::new(ErrorKind::Unreachable, format!("{place} shows no host key"))
            .with_hint("is it up, and does its SSH server listen on that port?")
            .with_context("address", &place)
    };
    let output = match tokio::time::timeout(PATIENCE, command.output()).await {
        Err(_) => return Err(silent()),
        Ok(Err(source)) => {
            return Err(Error::new(ErrorKind::BackendFailed, "ssh-keyscan cannot be run")
                .with_source(source)
                .with_hint("install the OpenSSH client, or give the key with --host-key"));
        }
        Ok(Ok(output)) => output,
    };
    let mut keys: Vec<PublicKey> = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines().filter(|line| !line.starts_with('#')) {
        // `address type key`; a line that is not so is not a key.
        let Some((_, key)) = line.split_once(' ') else { continue };
        if let Ok(key) = PublicKey::parse(key)
            && keys.len() < MOST_KEYS
            && !keys.contains(&key)
        {
            keys.push(key);
        }
    }
    if keys.is_empty() { Err(silent()) } else { Ok(keys) }
}
