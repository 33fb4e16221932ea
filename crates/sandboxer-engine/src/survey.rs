//! One look at everything of ours on many hosts: all pairs of host and extension at once, each with its own time limit.

use std::sync::Arc;
use std::time::Duration;

use sandboxer_core::extension::{Extension, Found};
use sandboxer_core::host::{Host, HostSign};
use sandboxer_core::{Capability, Error, ErrorKind, Result, SandboxId, SnapshotId};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Engine;
use crate::placement::is_hosts_fault;

/// Pairs that are looked at at the same time.
const AT_ONCE: usize = 8;
/// How long one pair may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// One extension on one host.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) host: String,
    pub(crate) id: String,
    pub(crate) extension: Arc<dyn Extension>,
    capability: Capability,
}

/// What a pair has under our tags, or why nobody knows.
pub(crate) struct Look {
    pub(crate) pair: Pair,
    pub(crate) found: Result<Vec<Found>>,
}

/// Whether an extension places sandboxes on this host. What has no hosts at all is looked at from our own machine.
pub(crate) fn can_use(capability: &Capability, host: &Host) -> bool {
    let nowhere = !capability.host_local && !capability.host_ssh;
    if host.is_local() { capability.host_local || nowhere } else { capability.host_ssh }
}

impl Engine {
    pub(crate) fn pairs(&self, hosts: &[Host]) -> Vec<Pair> {
        let mut out = Vec::new();
        for extension in self.inner.registry.iter() {
            let about = extension.describe();
            for host in hosts.iter().filter(|host| can_use(&about.capability, host)) {
                out.push(Pair {
                    host: host.name.clone(),
                    id: about.id.clone(),
                    extension: extension.clone(),
                    capability: about.capability.clone(),
                });
            }
        }
        out
    }

    /// Everything of ours on these hosts. A host that does not answer is left alone by new creates for a while.
    pub(crate) async fn survey(&self, hosts: &[Host]) -> Vec<Look> {
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        let mut looks = JoinSet::new();
        for (index, pair) in self.pairs(hosts).into_iter().enumerate() {
            let slots = slots.clone();
            looks.spawn(async move {
                let _slot = slots.acquire_owned().await;
                let found = tokio::time::timeout(PATIENCE, list_of(&pair)).await.unwrap_or_else(|_| {
                    let why = format!("no answer within {} s", PATIENCE.as_secs());
                    Err(Error::new(ErrorKind::Timeout, why))
                });
                (index, Look { pair, found })
            });
        }
        let mut out = Vec::new();
        while let Some(done) = looks.join_next().await {
            match done {
                Ok(look) => out.push(look),
                Err(error) => tracing::error!(%error, "a look at a host broke off"),
            }
        }
        out.sort_by_key(|(index, _)| *index);
        let out: Vec<Look> = out.into_iter().map(|(_, look)| look).collect();
        self.note_unreachable(hosts, &out).await;
        out
    }

    async fn note_unreachable(&self, hosts: &[Host], looks: &[Look]) {
        for host in hosts {
            // One extension that answers is enough: then it is not the host that is away.
            if !host.is_local()
                && let Some(error) = fault_of(&host.name, looks)
            {
                self.note_host(&host.name, &HostSign::Failed { reason: error.chain().join(": ") }).await;
            }
        }
    }
}

/// The fault that every extension met on this host.
fn fault_of(host: &str, looks: &[Look]) -> Option<Error> {
    let mut of_host = looks.iter().filter(|look| look.pair.host == host).peekable();
    let first = of_host.peek()?.found.as_ref().err().cloned()?;
    of_host.all(|look| look.found.as_ref().is_err_and(is_hosts_fault)).then_some(first)
}

async fn list_of(pair: &Pair) -> Result<Vec<Found>> {
    let mut found = pair.extension.list(&pair.host, SandboxId::PREFIX).await?;
    if pair.capability.snapshot {
        found.extend(pair.extension.list(&pair.host, SnapshotId::PREFIX).await?);
    }
    Ok(found)
}
