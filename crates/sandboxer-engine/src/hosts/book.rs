//! The hosts that are registered, over the store. Extensions look a host up here.

use std::sync::Arc;

use async_trait::async_trait;
use sandboxer_core::host::{Host, HostDirectory, LOCAL};
use sandboxer_core::suggest::{did_you_mean, printable};
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_store::{HostRecord, Store};

/// Cheap to clone; asks the store each time, since another process may have added a host.
#[derive(Clone)]
pub struct HostBook {
    store: Arc<dyn Store>,
}

impl HostBook {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Every host, the engine's own machine first, the others by name.
    pub async fn all(&self) -> Result<Vec<HostRecord>> {
        let (mut out, mut others) = (Vec::new(), Vec::new());
        for record in self.store.host_list().await? {
            if record.host.name == LOCAL { out.push(record) } else { others.push(record) }
        }
        if out.is_empty() {
            out.push(HostRecord::new(Host::local()));
        }
        out.extend(others);
        Ok(out)
    }

    /// One host, or the error that says which was probably meant.
    pub async fn get(&self, name: &str) -> Result<HostRecord> {
        match self.store.host_get(name).await? {
            Some(record) => Ok(record),
            None if name == LOCAL => Ok(HostRecord::new(Host::local())),
            None => {
                let known = self.all().await?;
                Err(absent(name, known.iter().map(|record| record.host.name.as_str())))
            }
        }
    }
}

#[async_trait]
impl HostDirectory for HostBook {
    async fn host(&self, name: &str) -> Result<Host> {
        // The engine's own machine has nothing to look up.
        if name == LOCAL {
            return Ok(Host::local());
        }
        Ok(self.get(name).await?.host)
    }
}

/// There is no such host.
pub(crate) fn absent<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Error {
    let error = Error::new(ErrorKind::HostNotFound, format!("there is no host `{}`", printable(name)))
        .with_context("host", printable(name));
    match did_you_mean(name, known) {
        Some(hint) => error.with_hint(hint),
        None => error.with_hint("`sandboxer hosts list` shows what is there, `sandboxer hosts add` adds one"),
    }
}
