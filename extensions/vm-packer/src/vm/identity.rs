//! The keys of one machine: who may come in, and by what the machine is known. Both are made here, for this machine alone,
//! so that the first contact is already strict.

use std::path::Path;

use sandboxer_core::Result;
use tokio::process::Command;

use super::Place;
use crate::files::failed;
use crate::tools::{Tools, call};

/// Both pairs; the private halves stay in their files.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// `ssh-ed25519 AAAA…`, what the guest lets in.
    pub(crate) authorized: String,
    /// `ssh-ed25519 AAAA…`, what the guest shows.
    pub(crate) host_key: String,
    pub(crate) host_key_private: String,
}

pub(crate) async fn generate(place: &Place, tools: &Tools) -> Result<Identity> {
    let authorized = pair(&place.identity(), tools).await?;
    let host_key = pair(&place.guest_key(), tools).await?;
    let private = place.guest_key();
    let host_key_private =
        std::fs::read_to_string(&private).map_err(|source| failed("read", &private, source))?;
    Ok(Identity { authorized, host_key, host_key_private })
}

/// Makes a pair and gives its public half without the comment.
async fn pair(path: &Path, tools: &Tools) -> Result<String> {
    let mut command = Command::new(tools.ssh_keygen.path()?);
    call(command.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(path)).await?;
    let public = path.with_extension("pub");
    let text = std::fs::read_to_string(&public).map_err(|source| failed("read", &public, source))?;
    Ok(text.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
}
