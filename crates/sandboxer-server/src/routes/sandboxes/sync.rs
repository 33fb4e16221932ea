//! `POST …/sync`.

use axum::extract::{RawQuery, State};
use http::StatusCode;
use sandboxer_engine::workspace::{SyncOptions, SyncReport};

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiResult, json};
use crate::json::OptionalJson;
use crate::openapi::Errors;
use crate::path::SandboxPath;
use crate::query::Params;

/// Bring a mirrored workspace and its folder together
///
/// Both ways unless `direction` says otherwise. Where both sides changed since they last agreed, neither is touched: the
/// path is among the `conflicts`, with a copy of the sandbox's version, until a request with `prefer` decides.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/sync", tag = "sandboxes",
    params(("id" = String, Path, description = "Sandbox id")),
    request_body(content = Option<SyncOptions>, example = json!({ "direction": "both", "dry_run": true })),
    responses((status = 200, description = "What was done", body = SyncReport), Errors)
)]
pub(crate) async fn sync_sandbox(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    RawQuery(query): RawQuery,
    OptionalJson(options): OptionalJson<SyncOptions>,
) -> ApiResult {
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().sync(&caller, id, options).await?)
}
