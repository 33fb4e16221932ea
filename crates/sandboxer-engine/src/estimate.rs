//! What a sandbox would cost: the itemised quote of the offer that would be taken, and what the others ask.

use std::collections::BTreeMap;

use sandboxer_core::profile::RouteSpec;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::route::RouteDecision;
use sandboxer_core::sandbox::Quote;
use sandboxer_core::{Dur, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::caller::Action;
use crate::{Caller, Engine};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EstimateRequest {
    /// The canary when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// How long it would run.
    pub duration: Dur,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, String>,
    /// Only this extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<String>,
    /// Only this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<RouteSpec>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Estimate {
    /// `profile.agent-dev@1.0.0`.
    pub profile: String,
    pub duration: Dur,
    /// The extension that would be taken; absent when none fits.
    pub extension: Option<String>,
    pub host: String,
    /// What it asks, line by line. A create with this TTL holds the amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<Quote>,
    /// Every candidate, with what it asks.
    pub route: RouteDecision,
}

impl Engine {
    /// Nothing is created and nothing is held.
    pub async fn estimate(&self, caller: &Caller, request: &EstimateRequest) -> Result<Estimate> {
        caller.require(Action::UseSandboxes)?;
        if request.duration == Dur::ZERO {
            return Err(Error::new(ErrorKind::InvalidInput, "an estimate is for a duration above zero")
                .with_hint("durations are written `90s`, `30m`, `2h`, `1d`"));
        }
        let wish = CreateRequest {
            profile: request.profile.clone(),
            inputs: request.inputs.clone(),
            ttl: Some(request.duration),
            extension: request.extension.clone(),
            host: request.host.clone(),
            route: request.route.clone(),
            ..CreateRequest::default()
        };
        let plan = self.plan_for(caller, &wish).await?;
        Ok(Estimate {
            quote: plan.extension.is_some().then_some(plan.quote),
            profile: plan.profile,
            duration: plan.ttl,
            extension: plan.extension,
            host: plan.host,
            route: plan.route,
        })
    }
}
