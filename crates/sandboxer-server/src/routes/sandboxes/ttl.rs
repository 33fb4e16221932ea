//! `POST …/extend` and `POST /v1/expire`.

use axum::extract::{RawQuery, State};
use http::StatusCode;
use sandboxer_core::Dur;
use sandboxer_core::page::Page;
use sandboxer_core::sandbox::Sandbox;
use sandboxer_engine::caller::Action;
use serde_json::json as value;

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiResult, json, to_json};
use crate::idempotency::{self, IdempotencyKey};
use crate::json::{JsonBody, OptionalJson};
use crate::openapi::Errors;
use crate::path::SandboxPath;
use crate::query::Params;

#[derive(serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExtendRequest {
    /// From now on.
    duration: Dur,
}

/// Move the end of a sandbox
///
/// To `duration` from now, never nearer than it was, within the maximum of the profile.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/extend", tag = "sandboxes",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Done once for the same key and body")
    ),
    request_body(content = ExtendRequest, example = json!({ "duration": "2h" })),
    responses((status = 200, description = "With its new end", body = Sandbox), Errors)
)]
pub(crate) async fn extend_sandbox(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    key: IdempotencyKey,
    RawQuery(query): RawQuery,
    JsonBody(request): JsonBody<ExtendRequest>,
) -> ApiResult {
    Params::parse(query.as_deref(), &[])?;
    let asked = || value!([id, request.duration]);
    let work = async {
        let sandbox = app.engine().extend_ttl(&caller, id, request.duration).await?;
        Ok((StatusCode::OK, to_json(&sandbox)?))
    };
    idempotency::once(&app, &caller, key, "extend", asked, work).await
}

#[derive(Default, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpireRequest {
    /// End them; otherwise they are only shown.
    #[serde(default)]
    apply: bool,
}

/// Show or end the sandboxes whose time is over
///
/// For operators. A running server does this by itself.
#[utoipa::path(
    post, path = "/v1/expire", tag = "sandboxes",
    request_body(content = Option<ExpireRequest>, example = json!({ "apply": true })),
    responses((status = 200, description = "Those that were found", body = Page<Sandbox>), Errors)
)]
pub(crate) async fn expire_sandboxes(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
    OptionalJson(request): OptionalJson<ExpireRequest>,
) -> ApiResult {
    caller.require(Action::Operate)?;
    Params::parse(query.as_deref(), &[])?;
    let items = app.engine().expire(&caller, request.apply).await?;
    json(StatusCode::OK, &Page { items, next_cursor: None })
}
