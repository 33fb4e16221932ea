//! Hosts: where sandboxes are placed.

use axum::extract::{RawQuery, State};
use http::StatusCode;
use sandboxer_core::page::Page;
use sandboxer_engine::caller::Action;
use sandboxer_engine::{HostCheck, HostView, NewHost};
use serde_json::json as value;

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiResult, json, to_json};
use crate::idempotency::{self, IdempotencyKey};
use crate::json::JsonBody;
use crate::openapi::Errors;
use crate::path::NamePath;
use crate::query::Params;

/// List hosts
///
/// For operators. The machine of the server, `local`, is always there and comes first.
#[utoipa::path(
    get, path = "/v1/hosts", tag = "hosts",
    responses((status = 200, description = "All, with their load and health", body = Page<HostView>), Errors)
)]
pub(crate) async fn list_hosts(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::Operate)?;
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &Page { items: app.engine().hosts(&caller).await?, next_cursor: None })
}

/// Add a host
///
/// For operators of type `adm`. Its key must be given, as `host_keys` or by a `fingerprint` that it then shows.
/// Without either the answer is 403 with the fingerprints that the host shows, for somebody to confirm.
#[utoipa::path(
    post, path = "/v1/hosts", tag = "hosts",
    params(("Idempotency-Key" = Option<String>, Header, description = "Added once for the same key and body")),
    request_body(content = NewHost, example = json!({
        "name": "sandboxer01",
        "address": "ssh://ops@10.0.0.4:22",
        "region": "eu",
        "capacity": { "sandboxes": 20 },
        "fingerprint": "SHA256:…"
    })),
    responses((status = 201, description = "Added", body = HostView), Errors)
)]
pub(crate) async fn add_host(
    State(app): State<App>,
    Auth(caller): Auth,
    key: IdempotencyKey,
    RawQuery(query): RawQuery,
    JsonBody(request): JsonBody<NewHost>,
) -> ApiResult {
    caller.require(Action::ManageHosts)?;
    Params::parse(query.as_deref(), &[])?;
    let work = async {
        let host = app.engine().host_add(&caller, &request).await?;
        Ok((StatusCode::CREATED, to_json(&host)?))
    };
    idempotency::once(&app, &caller, key, "hosts", || value!(request), work).await
}

/// Remove a host
///
/// For operators of type `adm`. 409 while sandboxes live on it, with their ids.
#[utoipa::path(
    delete, path = "/v1/hosts/{name}", tag = "hosts",
    params(("name" = String, Path, description = "Its name")),
    responses((status = 200, description = "Forgotten", body = HostView), Errors)
)]
pub(crate) async fn remove_host(
    State(app): State<App>,
    Auth(caller): Auth,
    NamePath(name): NamePath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::ManageHosts)?;
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().host_remove(&caller, &name).await?)
}

/// Check a host
///
/// For operators. Whether it answers, shows its pinned key, and what each extension finds on it. A host that answers
/// again is used again.
#[utoipa::path(
    post, path = "/v1/hosts/{name}/check", tag = "hosts",
    params(("name" = String, Path, description = "Its name", example = "local")),
    responses((status = 200, description = "What was found", body = HostCheck), Errors)
)]
pub(crate) async fn check_host(
    State(app): State<App>,
    Auth(caller): Auth,
    NamePath(name): NamePath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::Operate)?;
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().host_check(&caller, &name).await?)
}
