//! Snapshots: take one, look at them, start from one, delete one.

use axum::extract::{RawQuery, State};
use http::{HeaderMap, StatusCode};
use sandboxer_core::page::Page;
use sandboxer_core::request::CreateRequest;
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::snapshot::Snapshot;
use sandboxer_store::SnapshotFilter;
use serde_json::json as value;

use super::sandboxes::create;
use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiError, ApiResult, json, to_json};
use crate::idempotency::{self, IdempotencyKey};
use crate::json::OptionalJson;
use crate::openapi::Errors;
use crate::path::{SandboxPath, SnapshotPath};
use crate::query::Params;

#[derive(Clone, Default, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotRequest {
    /// For people, 1 to 128 printable characters; need not be unique.
    #[serde(default)]
    name: Option<String>,
}

/// Take a snapshot of a sandbox
///
/// It outlives the sandbox and stays until it is deleted.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/snapshots", tag = "snapshots",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Done once for the same key and body")
    ),
    request_body(content = Option<SnapshotRequest>, example = json!({ "name": "before the upgrade" })),
    responses((status = 201, description = "Taken", body = Snapshot), Errors)
)]
pub(crate) async fn take_snapshot(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    key: IdempotencyKey,
    RawQuery(query): RawQuery,
    OptionalJson(request): OptionalJson<SnapshotRequest>,
) -> ApiResult {
    Params::parse(query.as_deref(), &[])?;
    let asked = || value!([id, request]);
    let work = async {
        let snapshot = app.engine().snapshot(&caller, id, request.name.clone()).await?;
        Ok::<_, ApiError>((StatusCode::CREATED, to_json(&snapshot)?))
    };
    idempotency::once(&app, &caller, key, "snapshot", asked, work).await
}

/// List snapshots, newest first
///
/// Agents see those of their own sandboxes.
#[utoipa::path(
    get, path = "/v1/snapshots", tag = "snapshots",
    params(
        ("sandbox" = Option<String>, Query, description = "Only those of this sandbox"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("limit" = Option<u32>, Query, description = "Items on a page, 1 to 1000", example = 100)
    ),
    responses((status = 200, description = "A page", body = Page<Snapshot>), Errors)
)]
pub(crate) async fn list_snapshots(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    let params = Params::parse(query.as_deref(), &["sandbox", "cursor", "limit"])?;
    let filter = SnapshotFilter { sandbox: params.typed("sandbox")?, owner_key: None };
    let page = app.engine().snapshot_list(&caller, filter, params.get("cursor"), params.limit()?).await?;
    json(StatusCode::OK, &page)
}

/// Get a snapshot
#[utoipa::path(
    get, path = "/v1/snapshots/{id}", tag = "snapshots",
    params(("id" = String, Path, description = "Snapshot id")),
    responses((status = 200, description = "The snapshot", body = Snapshot), Errors)
)]
pub(crate) async fn get_snapshot(
    State(app): State<App>,
    Auth(caller): Auth,
    SnapshotPath(id): SnapshotPath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().snapshot_get(&caller, id).await?)
}

/// Delete a snapshot
///
/// 409 where living sandboxes that were started from it still need it. A backend that fails leaves it listed, and it is
/// tried again.
#[utoipa::path(
    delete, path = "/v1/snapshots/{id}", tag = "snapshots",
    params(("id" = String, Path, description = "Snapshot id")),
    responses((status = 200, description = "What it was", body = Snapshot), Errors)
)]
pub(crate) async fn delete_snapshot(
    State(app): State<App>,
    Auth(caller): Auth,
    SnapshotPath(id): SnapshotPath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().snapshot_delete(&caller, id).await?)
}

/// Start a sandbox from a snapshot
///
/// On the extension and host that have it, configured as its sandbox was; the body, a create request without `from`,
/// says what is different. The TTL is the profile's unless it is given.
#[utoipa::path(
    post, path = "/v1/snapshots/{id}/restore", tag = "snapshots",
    params(
        ("id" = String, Path, description = "Snapshot id"),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: do not wait until it is ready"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key and body give the same sandbox")
    ),
    request_body(content = Option<CreateRequest>, example = json!({ "ttl": "2h" })),
    responses(
        (status = 201, description = "Ready", body = Sandbox, headers(("Location" = String))),
        (status = 200, description = "A living one is given back (`reused`)", body = Sandbox),
        (status = 202, description = "Under way", body = Sandbox, headers(("Location" = String))),
        Errors
    )
)]
pub(crate) async fn restore_snapshot(
    State(app): State<App>,
    Auth(caller): Auth,
    SnapshotPath(id): SnapshotPath,
    key: IdempotencyKey,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    OptionalJson(request): OptionalJson<CreateRequest>,
) -> ApiResult {
    Params::parse(query.as_deref(), &[])?;
    let outcome = app.engine().restore(&caller, id, request, create::options(key, &headers)).await;
    create::answer(&app, outcome)
}
