//! Who the workspace belongs to: the numbers of the user that commands run as.

use std::io::Read as _;

use bollard::query_parameters::DownloadFromContainerOptionsBuilder;
use futures::StreamExt as _;
use sandboxer_core::{Error, ErrorKind, Result};

use crate::client::Connected;
use crate::errors::map;
use crate::seed::Owner;

/// Where an image keeps its accounts.
const ACCOUNTS: &str = "/etc/passwd";
/// The most that they may take.
const ACCOUNTS_LIMIT: usize = 1 << 20;

pub(crate) async fn find(connected: &Connected, container: &str, user: &str) -> Result<Owner> {
    match numeric(user) {
        Some(owner) => Ok(owner),
        None => named(connected, container, user).await,
    }
}

/// `1000:1000`, or `1000` with the group of the same number.
fn numeric(user: &str) -> Option<Owner> {
    let (uid, gid) = user.split_once(':').unwrap_or((user, user));
    Some(Owner { uid: uid.parse().ok()?, gid: gid.parse().ok()? })
}

/// An image may name its user; the numbers are in its own accounts.
async fn named(connected: &Connected, container: &str, user: &str) -> Result<Owner> {
    let options = DownloadFromContainerOptionsBuilder::default().path(ACCOUNTS).build();
    let mut stream = std::pin::pin!(connected.api.download_from_container(container, Some(options)));
    let mut tar = Vec::new();
    while let Some(piece) = stream.next().await {
        tar.extend_from_slice(&piece.map_err(|error| map(error, "read the accounts of an image"))?);
        if tar.len() > ACCOUNTS_LIMIT {
            break;
        }
    }
    let name = user.split(':').next().unwrap_or_default();
    look_up(&first_file(&tar), name).ok_or_else(|| {
        let name = sandboxer_core::suggest::printable(name);
        Error::new(
            ErrorKind::InvalidInput,
            format!("the image has no account `{name}`, which it names as its user"),
        )
    })
}

fn first_file(tar: &[u8]) -> String {
    let mut text = Vec::new();
    let mut archive = tar::Archive::new(tar);
    if let Ok(mut entries) = archive.entries()
        && let Some(Ok(mut entry)) = entries.next()
    {
        // What was cut off has no account that counts.
        let _ = entry.read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn look_up(accounts: &str, name: &str) -> Option<Owner> {
    let mut lines = accounts.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let fields = lines.find(|fields| fields.len() >= 4 && fields[0] == name)?;
    Some(Owner { uid: fields[2].parse().ok()?, gid: fields[3].parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_numbers_or_accounts() {
        assert_eq!(numeric("1000:50"), Some(Owner { uid: 1000, gid: 50 }));
        assert_eq!(numeric("7"), Some(Owner { uid: 7, gid: 7 }));
        assert_eq!(numeric("node"), None);
        let accounts = "root:x:0:0:root:/root:/bin/sh\nnode:x:1001:1002::/home/node:/bin/sh\n";
        assert_eq!(look_up(accounts, "node"), Some(Owner { uid: 1001, gid: 1002 }));
        assert_eq!(look_up(accounts, "nobody"), None);
    }
}
