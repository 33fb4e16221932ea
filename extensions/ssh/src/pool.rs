//! One way to each host, kept for as long as its registration is the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sandboxer_core::host::Host;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_remote::Remote;

use crate::config::Settings;
use crate::native::{self, Probe};

#[derive(Default)]
pub(crate) struct Pool(Mutex<HashMap<String, Way>>);

struct Way {
    host: Host,
    remote: Remote,
    /// Whether it runs sandboxes by its own `sandboxer`; asked when that matters.
    native: Arc<tokio::sync::Mutex<Option<Probe>>>,
}

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
        if let Some(way) = ways.get(name)
            && way.host.access == host.access
        {
            return Ok(way.remote.clone());
        }
        let remote = Remote::open(&host, &settings.state_dir)?;
        let way = Way { host, remote: remote.clone(), native: Arc::default() };
        ways.insert(name.to_owned(), way);
        Ok(remote)
    }

    /// Whether the host has a `sandboxer` that can be used. Those who ask at once wait for one answer.
    pub(crate) async fn native(&self, name: &str, remote: &Remote) -> Result<Probe> {
        let known = {
            let ways = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            ways.get(name).map(|way| way.native.clone()).unwrap_or_default()
        };
        let mut known = known.lock().await;
        if let Some(probe) = known.as_ref().filter(|probe| probe.is_fresh()) {
            return Ok(probe.clone());
        }
        let probe = native::look(remote).await?;
        tracing::debug!(host = name, obstacle = probe.obstacle, "looked for sandboxer on the host");
        *known = Some(probe.clone());
        Ok(probe)
    }
}
