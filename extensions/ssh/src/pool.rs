//! One way to each host, kept for as long as its registration is the same.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sandboxer_core::host::Host;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::Remote;

use crate::config::Settings;

#[derive(Default)]
pub(crate) struct Pool(Mutex<HashMap<String, (Host, Remote)>>);

impl Pool {
    pub(crate) async fn remote(&self, settings: &Settings, name: &str) -> Result<Remote> {
        let host = settings.hosts.host(name).await?;
        if host.is_local() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{} needs a host that is reached by SSH", crate::ID),
            )
            .with_hint("add one with `sandboxer hosts add`, or use ext.native on this machine"));
        }
        let mut ways = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, remote)) = ways.get(name)
            && known.access == host.access
        {
            return Ok(remote.clone());
        }
        let remote = Remote::open(&host, &settings.state_dir)?;
        ways.insert(name.to_owned(), (host, remote.clone()));
        Ok(remote)
    }
}
