//! `POST /v1/sandboxes` and `POST …/recreate`. A caller that goes away before the answer cancels the create.

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sandboxer_core::request::CreateRequest;
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_engine::caller::Action;
use sandboxer_engine::{CreateOptions, Created, Plan};
use tokio_util::sync::CancellationToken;

use super::telling;
use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiResult, json};
use crate::idempotency::IdempotencyKey;
use crate::json::OptionalJson;
use crate::openapi::Errors;
use crate::path::SandboxPath;
use crate::query::Params;
use crate::request_id::RequestContext;
use crate::stream::Form;

/// Create a sandbox
///
/// Without a body it is the canary. With `Accept: application/x-ndjson` or `text/event-stream` it tells how far it is:
/// records `{"type":"progress","line":…}`, and at the end `{"type":"sandbox","sandbox":…}` or `{"type":"error","error":…}`. With `Prefer: respond-async` the answer is 202 as soon as the intent is stored.
#[utoipa::path(
    post, path = "/v1/sandboxes", tag = "sandboxes",
    params(
        ("dry_run" = Option<bool>, Query, description = "Answer with the plan and create nothing"),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: do not wait until it is ready"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key and body give the same sandbox")
    ),
    request_body(content = Option<CreateRequest>, example = json!({
        "profile": "profile.agent-dev",
        "scope": "session",
        "workspace": { "mode": "mirror", "access": "rw" },
        "ttl": "2h",
        "consumer": { "actor": "agt", "harness": "glas-harness", "session_id": "s-1" }
    })),
    responses(
        (status = 201, description = "Ready", body = Sandbox, headers(("Location" = String))),
        (status = 200, description = "A living one is given back (`reused`); with `dry_run` the plan", body = CreateAnswer),
        (status = 202, description = "Under way", body = Sandbox, headers(("Location" = String))),
        Errors
    )
)]
pub(crate) async fn create_sandbox(
    State(app): State<App>,
    Auth(caller): Auth,
    key: IdempotencyKey,
    headers: HeaderMap,
    Extension(context): Extension<RequestContext>,
    RawQuery(query): RawQuery,
    OptionalJson(request): OptionalJson<CreateRequest>,
) -> ApiResult {
    caller.require(Action::UseSandboxes)?;
    if Params::parse(query.as_deref(), &["dry_run"])?.flag("dry_run")? {
        return json(StatusCode::OK, &app.engine().plan_for(&caller, &request).await?);
    }
    let options = options(key, &headers);
    if let Some(form) = Form::accepted(&headers).filter(|_| !options.respond_async) {
        return Ok(telling::answer(app, caller, request, options, form, context));
    }
    let outcome = app.engine().create(&caller, request, options).await;
    answer(&app, outcome)
}

/// Destroy a sandbox and create a new one like it
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/recreate", tag = "sandboxes",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: do not wait until it is ready"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key gives the same new sandbox")
    ),
    responses(
        (status = 201, description = "The new one is ready", body = Sandbox, headers(("Location" = String))),
        (status = 200, description = "A living one is given back (`reused`)", body = Sandbox),
        (status = 202, description = "The new one is under way", body = Sandbox, headers(("Location" = String))),
        Errors
    )
)]
pub(crate) async fn recreate_sandbox(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    key: IdempotencyKey,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> ApiResult {
    Params::parse(query.as_deref(), &[])?;
    let outcome = app.engine().recreate(&caller, id, options(key, &headers)).await;
    answer(&app, outcome)
}

/// What `POST /v1/sandboxes` answers with 200.
#[derive(serde::Serialize, utoipa::ToSchema)]
#[serde(untagged)]
#[allow(dead_code, clippy::large_enum_variant, reason = "only described, never made")]
pub(crate) enum CreateAnswer {
    Sandbox(Sandbox),
    Plan(Plan),
}

/// Dropping the create cancels it: the engine's guard does that and then cleans up.
pub(crate) fn options(key: IdempotencyKey, headers: &HeaderMap) -> CreateOptions {
    CreateOptions {
        idempotency_key: key.0,
        cancel: CancellationToken::new(),
        respond_async: prefers_async(headers),
        progress: Default::default(),
    }
}

fn prefers_async(headers: &HeaderMap) -> bool {
    let wishes = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    wishes.flat_map(|list| list.split(',')).any(|wish| wish.trim().eq_ignore_ascii_case("respond-async"))
}

pub(crate) fn answer(app: &App, outcome: Result<Created>) -> ApiResult {
    let status = count(app, &outcome);
    let sandbox = outcome?.sandbox;
    let mut response: Response = json(status, &sandbox)?;
    let location = HeaderValue::try_from(&sandbox.links.this)
        .map_err(|source| Error::new(ErrorKind::Internal, "a link is not a header").with_source(source))?;
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

/// Counts it, and gives the status of its answer.
pub(super) fn count(app: &App, outcome: &Result<Created>) -> StatusCode {
    let (status, label) = match outcome {
        Ok(created) if created.pending => (StatusCode::ACCEPTED, "accepted"),
        Ok(created) if created.sandbox.reused => (StatusCode::OK, "reused"),
        Ok(_) => (StatusCode::CREATED, "ready"),
        Err(error) => (StatusCode::OK, error.kind().code()),
    };
    app.metrics().creates.with_label_values(&[label]).inc();
    if let Some(routed) = routed(outcome) {
        app.metrics().routes.with_label_values(&[routed]).inc();
    }
    status
}

/// What routing made of a create; nothing where it had no part in it.
fn routed(outcome: &Result<Created>) -> Option<&'static str> {
    match outcome {
        Ok(created) if created.sandbox.reused => None,
        Ok(created) if created.sandbox.route.fallbacks().next().is_none() => Some("first_choice"),
        Ok(_) => Some("fallback"),
        Err(error) => match error.kind() {
            ErrorKind::NoBackend if std::error::Error::source(error).is_none() => Some("none_fits"),
            ErrorKind::InsufficientCredits => Some("insufficient_credits"),
            _ if error.class().is_some() => Some("all_failed"),
            _ => None,
        },
    }
}
