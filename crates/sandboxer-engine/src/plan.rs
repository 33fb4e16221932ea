//! From a request to a plan: the profile, the effective configuration, the route, the TTL. Nothing is written yet.

use sandboxer_core::extension::Registry;
use sandboxer_core::host;
use sandboxer_core::profile::{Profile, Scope, Strategy};
use sandboxer_core::request::CreateRequest;
use sandboxer_core::route::{Offer, RouteDecision, unmet};
use sandboxer_core::sandbox::Quote;
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{Dur, Error, ErrorKind, Result, Retry};

use crate::Engine;

/// What a create would do; also the answer to `create --dry-run`.
#[derive(Clone, Debug, serde::Serialize, utoipa::ToSchema)]
pub struct Plan {
    /// `profile.agent-dev@1.0.0`.
    pub profile: String,
    pub ttl: Dur,
    pub scope: Scope,
    /// The extension that would be asked first; absent when none fits.
    pub extension: Option<String>,
    pub host: String,
    pub route: RouteDecision,
    pub quote: Quote,
    #[serde(skip)]
    pub spec: SandboxSpec,
    #[serde(skip)]
    pub idle_reap: Option<Dur>,
}

impl Plan {
    /// The chosen offer, or the error that explains every refusal.
    pub fn offer(&self) -> Result<&Offer> {
        self.route.chosen().ok_or_else(|| {
            let reasons: Vec<String> = self
                .route
                .offers
                .iter()
                .map(|offer| format!("{}: {}", offer.extension, offer.reason))
                .collect();
            Error::new(
                ErrorKind::NoBackend,
                format!("no extension fits {} ({})", self.profile, reasons.join("; ")),
            )
            .with_retry(Retry::Permanent)
            .with_hint(
                "`sandboxer create --dry-run` shows the route, `sandboxer extensions list` what is there",
            )
        })
    }
}

impl Engine {
    /// Resolves a request without any effect.
    pub fn plan(&self, request: &CreateRequest) -> Result<Plan> {
        request.validate()?;
        let entry = self.inner.catalog.get(request.profile_name())?;
        let profile = &entry.profile;
        if request.from.is_some() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "no extension here can start from a snapshot yet",
            ));
        }
        let spec = SandboxSpec::new(profile, request);
        let host = self.host_for(profile, request)?;
        let route = decide(&self.inner.registry, profile, request, &spec, &host);
        Ok(Plan {
            profile: profile.reference(),
            ttl: ttl_of(profile, request)?,
            scope: request.scope.unwrap_or(profile.scope_default),
            extension: route.chosen().map(|offer| offer.extension.clone()),
            host,
            route,
            quote: Quote::self_hosted(),
            spec,
            idle_reap: profile.ttl.idle_reap,
        })
    }

    /// Only the local machine is registered until `hosts add` exists: any other wish is refused, never ignored.
    fn host_for(&self, _profile: &Profile, request: &CreateRequest) -> Result<String> {
        let wanted = request.host.as_deref().or(self.inner.host.as_deref()).unwrap_or(host::LOCAL);
        if wanted == host::LOCAL {
            return Ok(wanted.to_owned());
        }
        Err(Error::new(
            ErrorKind::NoBackend,
            format!("there is no host `{}`", sandboxer_core::suggest::printable(wanted)),
        )
        .with_hint("the only host is `local`; unset SANDBOXER_HOST or leave out --host"))
    }
}

fn ttl_of(profile: &Profile, request: &CreateRequest) -> Result<Dur> {
    let ttl = request.ttl.unwrap_or(profile.ttl.default);
    if ttl > profile.ttl.max {
        return Err(Error::new(
            ErrorKind::TtlAboveMax,
            format!(
                "a TTL of {ttl} is above the maximum of {}, which is {}",
                profile.reference(),
                profile.ttl.max
            ),
        )
        .with_hint(
            "ask for less, or use a profile of your own that `extends` this one with a higher `ttl.max`",
        ));
    }
    Ok(ttl)
}

/// Every candidate in its order with the reason for or against it.
fn decide(
    registry: &Registry,
    profile: &Profile,
    request: &CreateRequest,
    spec: &SandboxSpec,
    host: &str,
) -> RouteDecision {
    let strategy = request.route.as_ref().map_or(profile.route.strategy, |route| route.strategy);
    let mut candidates: Vec<String> = Vec::new();
    if let Some(only) = &request.extension {
        candidates.push(only.clone());
    } else {
        candidates.extend(profile.extension.clone());
        candidates.extend(profile.route.fallback.iter().cloned());
        candidates.extend(request.route.iter().flat_map(|route| route.fallback.iter().cloned()));
        if candidates.is_empty() && strategy != Strategy::Explicit {
            candidates.extend(registry.ids().map(str::to_owned));
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    candidates.retain(|id| seen.insert(id.clone()));
    let offers = candidates.into_iter().map(|extension| offer(registry, extension, spec, host)).collect();
    RouteDecision { strategy, offers }
}

fn offer(registry: &Registry, extension: String, spec: &SandboxSpec, host: &str) -> Offer {
    let (accepted, reason) = match registry.get(&extension) {
        Err(_) => (false, "this extension is not installed".to_owned()),
        Ok(found) => {
            let unmet = unmet(&found.describe().capability, spec);
            if unmet.is_empty() { (true, "fits the profile".to_owned()) } else { (false, unmet.join(", ")) }
        }
    };
    Offer { extension, host: host.to_owned(), accepted, reason }
}
