//! One look at everything of ours on many hosts: all pairs of host and extension at once, each with its own time limit.
//! An extension at which workspaces have keys of their own is looked at once more with each of these.

use std::sync::Arc;
use std::time::Duration;

use sandboxer_core::extension::{Extension, Found};
use sandboxer_core::host::{self, Host, HostSign};
use sandboxer_core::ledger::Seat;
use sandboxer_core::{Capability, Error, ErrorKind, Result, SandboxId, SnapshotId};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Engine;
use crate::placement::is_hosts_fault;
use crate::stale::Unanswered;

/// Pairs that are looked at at the same time.
const AT_ONCE: usize = 8;
/// How long one pair may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// One extension on one host, in one account.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) host: String,
    pub(crate) id: String,
    /// With the key of the account that it looks at.
    pub(crate) extension: Arc<dyn Extension>,
    /// The workspace whose own key that is; none for the platform's.
    pub(crate) own_key_of: Option<Seat>,
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
    /// Every pair, and those that cannot be looked at for want of their key.
    pub(crate) async fn pairs(&self, hosts: &[Host]) -> Result<(Vec<Pair>, Vec<Unanswered>)> {
        let keys = self.inner.store.own_keys().await?;
        let (mut out, mut unanswered) = (Vec::new(), Vec::new());
        for extension in self.inner.registry.iter() {
            let about = extension.describe();
            let mut accounts = vec![(None, extension.clone())];
            let mut seen = Vec::new();
            for key in keys.iter().filter(|key| key.extension == about.id) {
                let (organisation, workspace) = (key.organisation.clone(), key.workspace.clone());
                let seat = Seat { organisation, workspace };
                match self.account(&seat, &about.id, &mut seen).await {
                    Ok(Some(extension)) => accounts.push((Some(seat), extension)),
                    Ok(None) => {}
                    Err(error) => unanswered.push(Unanswered {
                        host: host::LOCAL.into(),
                        extension: about.id.clone(),
                        reason: error.chain().join(": "),
                    }),
                }
            }
            for host in hosts.iter().filter(|host| can_use(&about.capability, host)) {
                for (own_key_of, extension) in &accounts {
                    out.push(Pair {
                        host: host.name.clone(),
                        id: about.id.clone(),
                        extension: extension.clone(),
                        own_key_of: own_key_of.clone(),
                        capability: about.capability.clone(),
                    });
                }
            }
        }
        Ok((out, unanswered))
    }

    /// The account of a workspace, unless another one that was seen has the same key.
    async fn account(
        &self,
        seat: &Seat,
        extension: &str,
        seen: &mut Vec<String>,
    ) -> Result<Option<Arc<dyn Extension>>> {
        let fingerprint = self.key_of(seat, extension).await?.fingerprint();
        if seen.contains(&fingerprint) {
            return Ok(None);
        }
        seen.push(fingerprint);
        self.extension_in(extension, Some(seat)).await.map(Some)
    }

    /// Everything of ours on these hosts. A host that does not answer is left alone by new creates for a while.
    pub(crate) async fn survey(&self, hosts: &[Host]) -> Result<(Vec<Look>, Vec<Unanswered>)> {
        let (pairs, unanswered) = self.pairs(hosts).await?;
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        let mut looks = JoinSet::new();
        for (index, pair) in pairs.into_iter().enumerate() {
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
        Ok((out, unanswered))
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
