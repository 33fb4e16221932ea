//! `GET` and `DELETE /v1/sandboxes/{id}`.

use axum::extract::{RawQuery, State};
use http::StatusCode;
use sandboxer_core::sandbox::Sandbox;

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiResult, json};
use crate::openapi::Errors;
use crate::path::SandboxPath;
use crate::query::Params;

/// Get a sandbox
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}", tag = "sandboxes",
    params(("id" = String, Path, description = "Sandbox id")),
    responses((status = 200, description = "As it really is", body = Sandbox), Errors)
)]
pub(crate) async fn get_sandbox(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().get(&caller, id).await?)
}

/// Destroy a sandbox
///
/// Twice gives the same answer. A backend that fails leaves it `failed` with the cleanup report.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}", tag = "sandboxes",
    params(("id" = String, Path, description = "Sandbox id")),
    responses((status = 200, description = "Destroyed", body = Sandbox), Errors)
)]
pub(crate) async fn destroy_sandbox(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    Params::parse(query.as_deref(), &[])?;
    // In a task of its own: a caller that goes away does not leave a teardown half done.
    let engine = app.engine().clone();
    let destroyed = app.tasks().spawn(async move { engine.destroy(&caller, id).await }).await;
    let sandbox = destroyed.map_err(|source| {
        sandboxer_core::Error::new(sandboxer_core::ErrorKind::Internal, "a destroy broke off")
            .with_source(source)
    })??;
    json(StatusCode::OK, &sandbox)
}
