//! Where a sandbox goes: the hosts as they stand, read once, and the route over them.

use sandboxer_core::extension::Registry;
use sandboxer_core::host::HostSign;
use sandboxer_core::placement::{Considered, HostState, Wish, offers};
use sandboxer_core::profile::{Profile, Strategy};
use sandboxer_core::request::CreateRequest;
use sandboxer_core::route::{RouteDecision, unmet};
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{Error, ErrorKind, Result, Retry};

use crate::Engine;
use crate::hosts::{HostBook, absent};

/// The hosts at one moment. Any number of plans can be made on one.
pub(crate) struct Scene {
    pub(crate) hosts: Vec<HostState>,
}

impl Engine {
    pub(crate) fn book(&self) -> HostBook {
        HostBook::new(self.inner.store.clone())
    }

    /// Reads the hosts, and what is on them where there is a choice or a limit.
    pub(crate) async fn scene(&self) -> Result<Scene> {
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
        Ok(Scene { hosts })
    }

    /// The host that must be used: the request's word, then the operator's.
    pub(crate) fn wanted_host<'a>(&'a self, request: &'a CreateRequest) -> Option<&'a str> {
        request.host.as_deref().or(self.inner.host.as_deref())
    }

    /// Every candidate in its order with the reason for or against it.
    pub(crate) fn decide(
        &self,
        scene: &Scene,
        profile: &Profile,
        request: &CreateRequest,
        spec: &SandboxSpec,
    ) -> Result<RouteDecision> {
        let only = self.wanted_host(request);
        if let Some(name) = only.filter(|name| !scene.hosts.iter().any(|state| state.host.name == **name)) {
            return Err(absent(name, scene.hosts.iter().map(|state| state.host.name.as_str())));
        }
        let strategy = request.route.as_ref().map_or(profile.route.strategy, |route| route.strategy);
        let registry = &self.inner.registry;
        let considered: Vec<Considered> = candidates(registry, profile, request, strategy)
            .into_iter()
            .map(|id| consider(registry, id, spec))
            .collect();
        let asked = request.route.as_ref().and_then(|route| route.constraints.region.as_deref());
        let mut regions: Vec<&str> =
            [profile.requires.region.as_deref(), profile.route.constraints.region.as_deref(), asked]
                .into_iter()
                .flatten()
                .collect();
        regions.dedup();
        let wish = Wish {
            only,
            placement: &profile.placement,
            regions,
            resources: &spec.resources,
            now: self.now(),
        };
        Ok(RouteDecision { strategy, offers: offers(&considered, &scene.hosts, &wish), attempts: Vec::new() })
    }

    /// Remembers how a host answered. What cannot be remembered is not worth failing for.
    pub(crate) async fn note_host(&self, name: &str, sign: &HostSign) {
        if let Err(error) = self.inner.store.host_health(name, sign, None, self.now()).await {
            tracing::warn!(error = ?error, host = name, "the health of a host could not be recorded");
        }
    }
}

/// The extensions in the order in which they are asked.
fn candidates(
    registry: &Registry,
    profile: &Profile,
    request: &CreateRequest,
    strategy: Strategy,
) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    if let Some(only) = &request.extension {
        out.push(only.clone());
    } else {
        out.extend(profile.extension.clone());
        out.extend(profile.route.fallback.iter().cloned());
        out.extend(request.route.iter().flat_map(|route| route.fallback.iter().cloned()));
        if out.is_empty() && strategy != Strategy::Explicit {
            let general = registry.iter().map(|extension| extension.describe());
            out.extend(general.filter(|one| !one.capability.only_by_name).map(|one| one.id));
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    out.retain(|id| seen.insert(id.clone()));
    out
}

fn consider(registry: &Registry, id: String, spec: &SandboxSpec) -> Considered {
    let capability = registry.get(&id).ok().map(|extension| extension.describe().capability);
    let unmet = capability.as_ref().map(|capability| unmet(capability, spec)).unwrap_or_default();
    Considered { id, capability, unmet }
}

/// A failure that says something about the host and nothing about the request: another host may do better.
pub(crate) fn is_hosts_fault(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Unreachable | ErrorKind::HostKeyRefused | ErrorKind::Timeout | ErrorKind::NoSpace => true,
        ErrorKind::BackendFailed => error.retry() == Retry::Temporary,
        _ => false,
    }
}
