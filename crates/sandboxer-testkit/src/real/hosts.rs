//! A host directory over a fixed list.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use sandboxer_core::host::{Host, HostDirectory};
use sandboxer_core::{Error, ErrorKind, Result};

/// The hosts that a test registered; the local one is always there.
#[derive(Default)]
pub struct FixedHosts(Mutex<BTreeMap<String, Host>>);

impl FixedHosts {
    pub fn new(hosts: impl IntoIterator<Item = Host>) -> Self {
        Self(Mutex::new(hosts.into_iter().map(|host| (host.name.clone(), host)).collect()))
    }

    /// Adds a host or replaces the one of that name.
    pub fn set(&self, host: Host) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(host.name.clone(), host);
    }
}

#[async_trait]
impl HostDirectory for FixedHosts {
    async fn host(&self, name: &str) -> Result<Host> {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        match found {
            Some(host) => Ok(host),
            None if name == sandboxer_core::host::LOCAL => Ok(Host::local()),
            None => Err(Error::new(ErrorKind::HostNotFound, format!("there is no host `{name}`"))),
        }
    }
}
