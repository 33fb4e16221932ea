//! `GET …/execs` and `GET …/execs/{exec}`.

use axum::extract::{RawQuery, State};
use http::StatusCode;
use sandboxer_core::exec::ExecInfo;
use sandboxer_core::page::Page;

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiResult, json};
use crate::openapi::Errors;
use crate::path::{ExecPath, SandboxPath};
use crate::query::Params;

/// List the execs of a sandbox
///
/// Those that run and the most recent of those that ended.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/execs", tag = "execs",
    params(("id" = String, Path, description = "Sandbox id")),
    responses((status = 200, description = "All that are remembered", body = Page<ExecInfo>), Errors)
)]
pub(crate) async fn list_execs(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    Params::parse(query.as_deref(), &[])?;
    let items = app.engine().exec_list(&caller, id).await?;
    json(StatusCode::OK, &Page { items, next_cursor: None })
}

/// Get an exec
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/execs/{exec}", tag = "execs",
    params(("id" = String, Path, description = "Sandbox id"), ("exec" = String, Path, description = "Exec id")),
    responses((status = 200, description = "Where it stands", body = ExecInfo), Errors)
)]
pub(crate) async fn get_exec(
    State(app): State<App>,
    Auth(caller): Auth,
    ExecPath(id, exec): ExecPath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().exec_get(&caller, id, exec).await?)
}
