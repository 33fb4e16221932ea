//! Keys that workspaces have at providers themselves.

use axum::extract::{RawQuery, State};
use http::StatusCode;
use sandboxer_core::page::Page;
use sandboxer_engine::caller::Action;
use sandboxer_engine::{ProviderKeyRequest, ProviderKeyView};

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiResult, json};
use crate::json::JsonBody;
use crate::openapi::Errors;
use crate::query::Params;

/// List the workspaces' own keys at providers
///
/// For operators of type `adm`. Never the keys themselves.
#[utoipa::path(
    get, path = "/v1/credits/provider-keys", tag = "credits",
    responses((status = 200, description = "All, with fingerprints", body = Page<ProviderKeyView>), Errors)
)]
pub(crate) async fn list_provider_keys(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::ManageMoney)?;
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &Page { items: app.engine().provider_keys(&caller).await?, next_cursor: None })
}

/// Keep a workspace's own key at a provider
///
/// For operators of type `adm`. Sandboxes of the workspace use it from now on: the provider bills the workspace, and
/// only the fee is charged here. It takes the place of the one that was there.
#[utoipa::path(
    put, path = "/v1/credits/provider-keys", tag = "credits",
    request_body(content = ProviderKeyRequest, example = json!({
        "workspace": "acme/research", "extension": "ext.e2b", "key": "…", "fee_percent": "2.5"
    })),
    responses((status = 200, description = "Kept", body = ProviderKeyView), Errors)
)]
pub(crate) async fn set_provider_key(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
    JsonBody(request): JsonBody<ProviderKeyRequest>,
) -> ApiResult {
    caller.require(Action::ManageMoney)?;
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().provider_key_set(&caller, &request).await?)
}

/// Forget a workspace's own key at a provider
///
/// For operators of type `adm`.
#[utoipa::path(
    delete, path = "/v1/credits/provider-keys", tag = "credits",
    params(
        ("workspace" = String, Query, description = "`research` or `acme/research`"),
        ("extension" = String, Query, description = "Extension id", example = "ext.e2b")
    ),
    responses((status = 200, description = "What it was", body = ProviderKeyView), Errors)
)]
pub(crate) async fn remove_provider_key(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::ManageMoney)?;
    let params = Params::parse(query.as_deref(), &["workspace", "extension"])?;
    let (workspace, extension) = (params.required("workspace")?, params.required("extension")?);
    json(StatusCode::OK, &app.engine().provider_key_remove(&caller, workspace, extension).await?)
}
