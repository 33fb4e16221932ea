//! What a decision looks at, read once: the hosts as they stand, what is remembered of them, what is taken of limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use sandboxer_core::host::HostSign;
use sandboxer_core::placement::HostState;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::route::Slots;
use sandboxer_core::sandbox::SandboxRecord;
use sandboxer_core::tariff::{ProviderKey, Terms};
use sandboxer_core::{Error, ErrorKind, Result, Retry, State};

use crate::health::Past;
use crate::hosts::HostBook;
use crate::{Caller, Engine};

/// One moment. Any number of plans can be made on one.
pub(crate) struct Scene {
    pub(crate) hosts: Vec<HostState>,
    pub(crate) past: Arc<Past>,
    /// Of extensions with limits.
    pub(crate) slots: BTreeMap<String, Slots>,
    /// Of extensions that somebody is charged for.
    pub(crate) terms: BTreeMap<String, Terms>,
}

impl Scene {
    /// As it would be without this sandbox.
    pub(crate) fn leave_out(&mut self, record: &SandboxRecord, now: Timestamp) {
        let (sandbox, resources) = (&record.sandbox, &record.spec.resources);
        if sandbox.state == State::Destroyed {
            return;
        }
        if let Some(state) = self.hosts.iter_mut().find(|state| state.host.name == sandbox.host) {
            let load = &mut state.load;
            load.sandboxes = load.sandboxes.saturating_sub(1);
            load.cpu = (load.cpu - resources.cpu.unwrap_or_default()).max(0.0);
            load.memory_mb = load.memory_mb.saturating_sub(resources.memory_mb.unwrap_or_default());
            load.disk_mb = load.disk_mb.saturating_sub(resources.disk_mb.unwrap_or_default());
        }
        // One whose time is over is not counted any more.
        if let Some(slots) = self.slots.get_mut(&sandbox.extension).filter(|_| sandbox.expires_at > now) {
            slots.living = slots.living.saturating_sub(1);
        }
    }
}

impl Engine {
    pub(crate) fn book(&self) -> HostBook {
        HostBook::new(self.inner.store.clone())
    }

    /// Reads the hosts, and what is on them where there is a choice or a limit. For views of many profiles at once.
    pub(crate) async fn scene(&self) -> Result<Scene> {
        self.scene_for(None, "", &[]).await
    }

    /// The same with all that these extensions and this profile need.
    pub(crate) async fn scene_for(
        &self,
        caller: Option<&Caller>,
        profile: &str,
        extensions: &[String],
    ) -> Result<Scene> {
        let records = self.book().all().await?;
        let alone = records.len() == 1 && records.iter().all(|r| r.host.capacity == Default::default());
        let mut loads = if alone { Default::default() } else { self.inner.store.host_loads().await? };
        let hosts = records
            .into_iter()
            .map(|record| HostState {
                load: loads.remove(&record.host.name).unwrap_or_default(),
                host: record.host,
                health: record.health,
            })
            .collect();
        let mut past = self.past(profile).await;
        let (mut slots, mut terms) = (BTreeMap::new(), BTreeMap::new());
        for id in extensions {
            if let Some(limits) = self.limits_of(id) {
                self.count_older(id).await?;
                slots.insert(id.clone(), self.inner.store.route_slots(id, limits, self.now()).await?);
            }
            let hosted = self.inner.registry.get(id).is_ok_and(|one| !one.describe().capability.self_hosted);
            if let Some(caller) = caller.filter(|_| hosted) {
                let of_caller = self.terms(caller, id).await?;
                if of_caller.provider_key == ProviderKey::Own {
                    past = past.with_own_key_at(id);
                }
                terms.insert(id.clone(), of_caller);
            }
        }
        Ok(Scene { hosts, past, slots, terms })
    }

    /// The host that must be used: the request's word, then the operator's.
    pub(crate) fn wanted_host<'a>(&'a self, request: &'a CreateRequest) -> Option<&'a str> {
        request.host.as_deref().or(self.inner.host.as_deref())
    }

    /// Remembers how a host answered. What cannot be remembered is not worth failing for.
    pub(crate) async fn note_host(&self, name: &str, sign: &HostSign) {
        if let Err(error) = self.inner.store.host_health(name, sign, None, self.now()).await {
            tracing::warn!(error = ?error, host = name, "the health of a host could not be recorded");
        }
    }
}

/// A failure that says something about the host and nothing about the request: another host may do better.
pub(crate) fn is_hosts_fault(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Unreachable | ErrorKind::HostKeyRefused | ErrorKind::Timeout | ErrorKind::NoSpace => true,
        ErrorKind::BackendFailed => error.retry() == Retry::Temporary,
        _ => false,
    }
}
