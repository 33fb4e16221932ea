//! From a request to a plan: the profile, the effective configuration, the route, the TTL. Nothing is written yet.

use jiff::Timestamp;
use sandboxer_core::host;
use sandboxer_core::profile::{Profile, Scope};
use sandboxer_core::request::CreateRequest;
use sandboxer_core::route::{Offer, RouteDecision};
use sandboxer_core::sandbox::Quote;
use sandboxer_core::spec::SandboxSpec;
use sandboxer_core::{Dur, Error, ErrorKind, Result, Retry};

use crate::placement::Scene;
use crate::reroute::attempt_of_refusal;
use crate::route::Decided;
use crate::{Caller, Engine};

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
    #[serde(skip)]
    pub decided_at: Timestamp,
    /// The checkpoint that it would start from.
    #[serde(skip)]
    pub from: Option<sandboxer_core::snapshot::Taken>,
}

/// Where an error carries the offers, as JSON.
const OFFERS: &str = "offers";
/// And the tries.
pub(crate) const ATTEMPTS: &str = "attempts";

/// The error with every offer and every try, for programs.
pub(crate) fn explained(error: Error, route: &RouteDecision) -> Error {
    let attempts = serde_json::to_string(&route.attempts).unwrap_or_default();
    error.with_context(OFFERS, offers_text(route)).with_context(ATTEMPTS, attempts)
}

/// The offers for programs.
fn offers_text(route: &RouteDecision) -> String {
    serde_json::to_string(&route.offers).unwrap_or_default()
}

/// How long it is until the first of these moments, at least a second; nothing where all are over.
pub(crate) fn rest(ends: impl Iterator<Item = Timestamp>, now: Timestamp) -> Option<Dur> {
    let next = ends.filter(|end| *end > now).min()?;
    let left = next.as_millisecond() - now.as_millisecond();
    Some(Dur::from_millis(u64::try_from(left).unwrap_or_default()).max(Dur::from_secs(1)))
}

impl Plan {
    /// Goes on to the next offer that costs less than the one that could not be paid. Nothing was made yet.
    pub(crate) fn pass_over(&mut self, refusal: &Error) -> bool {
        let price = |offer: &Offer| offer.quote.map(|quote| quote.amount).unwrap_or_default();
        let Some(dear) = self.route.untried().cloned() else { return false };
        let before = self.route.attempts.len();
        self.route.attempts.push(attempt_of_refusal(&dear.backend(), refusal));
        while let Some(next) = self.route.untried() {
            if price(next) < price(&dear) {
                return true;
            }
            let past = attempt_of_refusal(&next.backend(), refusal);
            self.route.attempts.push(past);
        }
        self.route.attempts.truncate(before);
        false
    }

    /// The chosen offer, or the error that explains every refusal.
    pub fn offer(&self) -> Result<&Offer> {
        self.route.chosen().ok_or_else(|| {
            let reasons: Vec<String> =
                self.route.offers.iter().map(|offer| format!("{}: {}", offer.name(), offer.reason)).collect();
            let error = Error::new(
                ErrorKind::NoBackend,
                format!("no extension fits {} ({})", self.profile, reasons.join("; ")),
            )
            .with_context(OFFERS, offers_text(&self.route))
            .with_hint(
                "`sandboxer create --dry-run` shows the route, `sandboxer extensions list` what is there",
            );
            let ends = self.route.offers.iter().filter_map(|offer| offer.again_at);
            match rest(ends, self.decided_at) {
                Some(rest) => error.with_retry_after(rest),
                None => error.with_retry(Retry::Permanent),
            }
        })
    }
}

impl Engine {
    /// Resolves a request without any effect, for nobody in particular.
    pub async fn plan(&self, request: &CreateRequest) -> Result<Plan> {
        self.plan_as(None, request).await
    }

    /// The same at the prices of this caller.
    pub(crate) async fn plan_as(&self, caller: Option<&Caller>, request: &CreateRequest) -> Result<Plan> {
        let scene = self.scene_of(caller, request).await?;
        self.plan_on(&scene, request)
    }

    /// What a plan for this request looks at.
    pub(crate) async fn scene_of(&self, caller: Option<&Caller>, request: &CreateRequest) -> Result<Scene> {
        request.validate()?;
        let entry = self.inner.catalog.get(request.profile_name())?;
        let asked = self.candidates(&self.route_of(&entry.profile, request));
        self.scene_for(caller, &entry.profile.reference(), &asked).await
    }

    /// The same on hosts that were read before.
    pub(crate) fn plan_on(&self, scene: &Scene, request: &CreateRequest) -> Result<Plan> {
        request.validate()?;
        let entry = self.inner.catalog.get(request.profile_name())?;
        let profile = &entry.profile;
        if request.from.is_some() {
            // What a snapshot says is its owner's business: `plan_for` knows the caller.
            return Err(Error::new(ErrorKind::Internal, "a plan from a snapshot without its caller"));
        }
        self.check_named(request)?;
        let spec = SandboxSpec::new(profile, request);
        let ttl = ttl_of(profile, request)?;
        let Decided { route, quote } = self.decide(scene, profile, request, &spec, ttl)?;
        let host = route.chosen().map(|offer| offer.host.as_str()).or(self.wanted_host(request));
        let host = host.unwrap_or(host::LOCAL).to_owned();
        Ok(Plan {
            profile: profile.reference(),
            ttl,
            scope: request.scope.unwrap_or(profile.scope_default),
            extension: route.chosen().map(|offer| offer.extension.clone()),
            host,
            route,
            quote: quote.unwrap_or_else(Quote::self_hosted),
            spec,
            idle_reap: profile.ttl.idle_reap,
            decided_at: self.now(),
            from: None,
        })
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
