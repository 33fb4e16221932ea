//! `POST …/pause` and `POST …/resume`.

use axum::extract::{RawQuery, State};
use http::StatusCode;
use sandboxer_core::sandbox::Sandbox;

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiResult, json};
use crate::openapi::Errors;
use crate::path::SandboxPath;
use crate::query::Params;

/// Pause a sandbox
///
/// Everything inside stops where it stands; commands and files are refused until it is resumed. The TTL goes on.
/// Twice gives the same answer.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/pause", tag = "sandboxes",
    params(("id" = String, Path, description = "Sandbox id")),
    responses((status = 200, description = "Paused", body = Sandbox), Errors)
)]
pub(crate) async fn pause_sandbox(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().pause(&caller, id).await?)
}

/// Let a paused sandbox go on
///
/// Twice gives the same answer.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/resume", tag = "sandboxes",
    params(("id" = String, Path, description = "Sandbox id")),
    responses((status = 200, description = "It runs", body = Sandbox), Errors)
)]
pub(crate) async fn resume_sandbox(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().resume(&caller, id).await?)
}
