//! Who may share one sandbox: requests with the same key, which says whose they are and what they demand of the route.

use sandboxer_core::profile::{RouteSpec, Scope, Strategy};
use sandboxer_core::request::CreateRequest;
use serde_json::{Value, json};

use crate::{Caller, Engine, Plan};

/// Nothing where every create is for itself.
pub(crate) struct Sharing {
    pub(crate) key: Option<String>,
    /// The key of those who demand nothing of the route.
    pub(crate) freely: Option<String>,
}

impl Sharing {
    /// `agent`: the same consumer, whatever its session; `shared`: the same caller. What request and configuration
    /// demand is part of the key, so that nobody is given a sandbox in a place or at a price that was ruled out. What the
    /// profile demands is in its name.
    pub(crate) fn of(caller: &Caller, request: &CreateRequest, plan: &Plan, engine: &Engine) -> Self {
        let consumer = &request.consumer;
        let identity = match plan.scope {
            Scope::Session => return Self { key: None, freely: None },
            Scope::Agent => json!([consumer.actor, consumer.harness, consumer.agent_id]),
            Scope::Shared => json!([]),
        };
        let mut whole = vec![json!(plan.scope), json!(caller.key_text()), identity, json!(plan.profile)];
        // What started from a snapshot is shared with others of the same start only.
        whole.extend(request.from.as_ref().map(|from| json!(from)));
        let freely = sandboxer_core::hash::of_value(&whole.clone().into());
        let demands = engine.demands(request);
        let key = match demands.is_empty() {
            true => freely.clone(),
            false => {
                whole.push(json!({ "route": demands }));
                sandboxer_core::hash::of_value(&whole.into())
            }
        };
        Self { key: Some(key), freely: Some(freely) }
    }
}

impl Engine {
    /// Everything that rules a backend out, in one order whoever said it.
    fn demands(&self, request: &CreateRequest) -> Vec<Value> {
        let mut out = Vec::new();
        for (whose, spec) in [("configuration", Some(&self.inner.route)), ("request", request.route.as_ref())]
        {
            let demands = spec.map(of_spec).unwrap_or_default();
            if !demands.is_empty() {
                out.push(json!([whose, demands]));
            }
        }
        let named = [("extension", request.extension.as_deref()), ("host", self.wanted_host(request))];
        out.extend(named.iter().filter_map(|(what, name)| name.map(|name| json!([what, name]))));
        out.extend(request.max_cost.map(|most| json!(["max_cost", most])));
        out
    }
}

fn of_spec(spec: &RouteSpec) -> Vec<Value> {
    let sorted = |ids: &[String]| {
        let mut ids = ids.to_vec();
        ids.sort();
        ids
    };
    let mut out = Vec::new();
    for (what, ids) in [
        ("only", sorted(&spec.only)),
        ("ignore", sorted(&spec.ignore)),
        // Here the order is what was asked for.
        ("order", spec.order.clone()),
    ] {
        if !ids.is_empty() {
            out.push(json!([what, ids]));
        }
    }
    if spec.strategy == Some(Strategy::Explicit) {
        out.push(json!(["explicit", spec.fallback]));
    }
    let mut bounds = spec.constraints.clone();
    bounds.capabilities = sorted(&bounds.capabilities);
    bounds.residency = sorted(&bounds.residency);
    if bounds != Default::default() {
        out.push(json!(["constraints", bounds]));
    }
    out
}
