//! The route of a request: who could do it, at what price, and who is asked first. Core decides; this only asks
//! everybody what core needs to know.

use std::hash::{BuildHasher as _, Hasher as _};

use sandboxer_core::capability::Capability;
use sandboxer_core::extension::Location;
use sandboxer_core::host::LOCAL;
use sandboxer_core::placement::{Considered, Wish, offers};
use sandboxer_core::profile::{Profile, Strategy};
use sandboxer_core::request::CreateRequest;
use sandboxer_core::route::{
    Candidate, Known, Offer, OfferQuote, Price, Refusal, Route, RouteDecision, candidates, decide, unmet,
};
use sandboxer_core::sandbox::Quote;
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::suggest::did_you_mean;
use sandboxer_core::tariff::{ProviderKey, Terms};
use sandboxer_core::{Dur, Error, ErrorKind, Result};

use crate::Engine;
use crate::hosts::absent;
use crate::placement::Scene;

/// How core says it.
const ABSENT: &str = "this extension is not installed";

/// The decision, and the whole quote of the offer that comes first.
pub(crate) struct Decided {
    pub(crate) route: RouteDecision,
    pub(crate) quote: Option<Quote>,
}

impl Engine {
    /// The wishes of configuration, profile and request together.
    pub(crate) fn route_of(&self, profile: &Profile, request: &CreateRequest) -> Route {
        Route::new(&self.inner.route, profile, request)
    }

    /// The extensions that are asked.
    pub(crate) fn candidates(&self, route: &Route) -> Vec<String> {
        let registry = &self.inner.registry;
        let named: Vec<(&str, bool)> = registry
            .ids()
            .zip(registry.iter())
            .map(|(id, extension)| (id, extension.describe().capability.only_by_name))
            .collect();
        let known: Vec<Known<'_>> =
            named.iter().map(|(id, only_by_name)| Known { id, only_by_name: *only_by_name }).collect();
        candidates(route, &known)
    }

    /// Every candidate in its order with the reason for or against it.
    pub(crate) fn decide(
        &self,
        scene: &Scene,
        profile: &Profile,
        request: &CreateRequest,
        spec: &SandboxSpec,
        ttl: Dur,
    ) -> Result<Decided> {
        let only = self.wanted_host(request);
        if let Some(name) = only.filter(|name| !scene.hosts.iter().any(|state| state.host.name == **name)) {
            return Err(absent(name, scene.hosts.iter().map(|state| state.host.name.as_str())));
        }
        let (route, now) = (self.route_of(profile, request), self.now());
        self.check_weights(&route, request)?;
        let mut asked: Vec<Asked> =
            self.candidates(&route).into_iter().map(|id| self.ask(id, spec)).collect();
        // Whoever names a host means it. With the extension named too, it is what a service calls its place.
        if let (Some(host), None) = (only, &request.extension) {
            for one in asked.iter_mut().filter(|one| one.is_elsewhere()) {
                one.unmet.push(format!("it runs on no host of yours, and host `{host}` was asked for"));
            }
        }
        let considered: Vec<Considered> = asked
            .iter()
            .map(|one| Considered {
                id: one.id.clone(),
                capability: one.capability.clone(),
                unmet: one.unmet.clone(),
            })
            .collect();
        let wish = Wish {
            only,
            placement: &profile.placement,
            regions: route.bounds.regions.iter().map(String::as_str).collect(),
            resources: &spec.resources,
            now,
        };
        let mut quotes: Vec<(String, String, Quote)> = Vec::new();
        let mut all: Vec<Candidate<'_>> = Vec::new();
        for offer in offers(&considered, &scene.hosts, &wish) {
            let one = asked.iter().find(|one| one.id == offer.extension);
            let price = match self.price(scene, &offer, spec, ttl) {
                Ok((quote, short)) => {
                    quotes.push((offer.extension.clone(), offer.host.clone(), quote));
                    Price::Quoted(short)
                }
                Err(error) => Price::Unknown(error.to_string()),
            };
            let backend = offer.backend();
            all.push(Candidate {
                location: self.location(scene, one, &offer),
                capability: one.and_then(|one| one.capability.as_ref()),
                price,
                latency: scene.past.latency(&backend),
                breakers: scene.past.breakers(&backend),
                full: self.is_full(scene, &offer.extension),
                offer,
            });
        }
        let mut decision = decide(&route, all, now, dice());
        decision.pinned = request.extension.is_some() || request.host.is_some();
        decision.demanded = request.route.as_ref().map(|route| route.constraints.clone()).unwrap_or_default();
        self.tell_absent(&route, &mut decision);
        tell_left_out(&route, request, &mut decision);
        let route = decision;
        let quote = route.chosen().and_then(|chosen| {
            let is_chosen = |(extension, host, _): &(String, String, Quote)| {
                *extension == chosen.extension && *host == chosen.host
            };
            quotes.into_iter().find(is_chosen).map(|(_, _, quote)| quote)
        });
        Ok(Decided { route, quote })
    }

    fn ask(&self, id: String, spec: &SandboxSpec) -> Asked {
        let extension = self.inner.registry.get(&id).ok();
        let capability = extension.as_ref().map(|extension| extension.describe().capability);
        let unmet = capability.as_ref().map(|capability| unmet(capability, spec)).unwrap_or_default();
        let own = extension.map(|extension| extension.location()).unwrap_or_default();
        let location = match self.inner.extension_limits.get(&id) {
            Some(limits) => limits.location(own),
            None => own,
        };
        Asked { id, capability, unmet, location }
    }

    /// The quote, and its short form, which also knows what a key of the workspace's own pays elsewhere.
    fn price(
        &self,
        scene: &Scene,
        offer: &Offer,
        spec: &SandboxSpec,
        ttl: Dur,
    ) -> Result<(Quote, OfferQuote)> {
        let tariff = self.tariff(&offer.extension, &offer.host, &spec.resources)?;
        let terms = scene.terms.get(&offer.extension).copied().unwrap_or_default();
        let quote = tariff.quote(ttl, terms)?;
        let hourly = match terms.provider_key {
            ProviderKey::Platform => quote.per_hour,
            ProviderKey::Own => {
                tariff.quote(ttl, Terms { provider_key: ProviderKey::Platform, ..terms })?.per_hour
            }
        };
        let short = OfferQuote::new(&quote, hourly);
        Ok((quote, short))
    }

    /// A request says what it means now: an extension that is not here is a slip of the hand.
    pub(crate) fn check_named(&self, request: &CreateRequest) -> Result<()> {
        for (key, id) in request.route.iter().flat_map(|route| route.extensions()) {
            self.inner.registry.get(id).map_err(|error| {
                let hint = error.hint().unwrap_or_default().to_owned();
                Error::new(ErrorKind::InvalidInput, format!("`route.{key}`: {error}")).with_hint(hint)
            })?;
        }
        Ok(())
    }

    /// Weights are for one strategy. Where another one applies, whoever gave them expects something else.
    fn check_weights(&self, route: &Route, request: &CreateRequest) -> Result<()> {
        let has_weights = request.route.as_ref().is_some_and(|route| !route.weights.is_empty());
        if !has_weights || route.strategy == Strategy::Weighted {
            return Ok(());
        }
        let message = "`route.weights`: only the strategy `weighted` uses them, and nobody asked for it";
        Err(Error::new(ErrorKind::InvalidInput, message)
            .with_hint("`--strategy weighted`, or `\"strategy\": \"weighted\"`"))
    }

    /// Profiles and the configuration may name extensions that are not here; whoever reads the offers learns it.
    fn tell_absent(&self, route: &Route, decision: &mut RouteDecision) {
        let registry = &self.inner.registry;
        if route.asked.is_none() {
            let lists = [
                ("order", &route.order),
                ("only", route.only.as_ref().unwrap_or(&route.order)),
                ("ignore", &route.ignore),
            ];
            let listed = lists.into_iter().flat_map(|(key, ids)| ids.iter().map(move |id| (key, id)));
            for (key, id) in listed.chain(route.weights.keys().map(|id| ("weights", id))) {
                let is_told = decision.offers.iter().any(|offer| offer.extension == *id);
                if is_told || registry.get(id).is_ok() {
                    continue;
                }
                let why = Refusal::for_good(format!("`route.{key}` names it, and {ABSENT}"));
                decision.offers.push(Offer::refused(id, LOCAL, why));
            }
        }
        for offer in decision.offers.iter_mut().filter(|offer| offer.reason.ends_with(ABSENT)) {
            if let Some(meant) = did_you_mean(&offer.extension, registry.ids()) {
                offer.reason.push_str("; ");
                offer.reason.push_str(&meant);
            }
        }
    }

    /// Where it would run: a host says so itself, a service elsewhere as its extension or the operator says.
    fn location(&self, scene: &Scene, one: Option<&Asked>, offer: &Offer) -> Location {
        let Some(one) = one else { return Location::default() };
        let has_hosts = one.capability.as_ref().is_some_and(|can| can.host_local || can.host_ssh);
        let host = scene.hosts.iter().find(|state| state.host.name == offer.host).map(|state| &state.host);
        let (true, Some(host)) = (has_hosts, host) else { return one.location.clone() };
        let regions: Vec<String> = host.region.iter().cloned().collect();
        let residency = host.labels.get("residency").cloned().into_iter().chain(regions.clone()).collect();
        // What the operator says about an extension on this machine holds where the machine itself says nothing.
        if offer.host == LOCAL && regions.is_empty() && host.labels.is_empty() {
            return one.location.clone();
        }
        Location { regions, residency }
    }
}

/// Whom a request names without effect, since its extension or its profile's leaves everybody else out.
fn tell_left_out(route: &Route, request: &CreateRequest, decision: &mut RouteDecision) {
    let named = request.route.iter().flat_map(|route| route.extensions());
    for (key, id) in named.filter(|(key, _)| *key != "ignore") {
        if decision.offers.iter().any(|offer| offer.extension == id) {
            continue;
        }
        let who = match &route.asked {
            Some(asked) => format!("the request asks for `{asked}` alone"),
            None => "the profile says itself which extensions are asked".to_owned(),
        };
        let why = Refusal::for_good(format!("`route.{key}` names it, and {who}"));
        decision.offers.push(Offer::refused(id, LOCAL, why));
    }
}

/// One extension, asked about a request.
struct Asked {
    id: String,
    capability: Option<Capability>,
    unmet: Vec<String>,
    location: Location,
}

impl Asked {
    /// A service that has no hosts of ours to choose from.
    fn is_elsewhere(&self) -> bool {
        self.capability.as_ref().is_some_and(|can| !can.host_local && !can.host_ssh)
    }
}

/// A number that nobody can foresee, where chance decides.
fn dice() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
