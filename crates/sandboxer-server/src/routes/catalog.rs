//! What there is to choose from, and what would be chosen.

use axum::extract::{RawQuery, State};
use http::StatusCode;
use sandboxer_core::page::Page;
use sandboxer_core::request::CreateRequest;
use sandboxer_engine::caller::Action;
use sandboxer_engine::{Estimate, EstimateRequest, ExtensionView, Plan, ProfileView};

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiResult, json};
use crate::json::{JsonBody, OptionalJson};
use crate::openapi::Errors;
use crate::path::NamePath;
use crate::query::Params;

/// List profiles
#[utoipa::path(
    get, path = "/v1/profiles", tag = "catalog",
    responses((status = 200, description = "All, with whether each can be used here", body = Page<ProfileView>), Errors)
)]
pub(crate) async fn list_profiles(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::UseSandboxes)?;
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &Page { items: app.engine().profiles().await?, next_cursor: None })
}

/// Get a profile
#[utoipa::path(
    get, path = "/v1/profiles/{name}", tag = "catalog",
    params(("name" = String, Path, description = "With or without its version", example = "profile.agent-dev")),
    responses((status = 200, description = "Merged, with where it came from", body = ProfileView), Errors)
)]
pub(crate) async fn get_profile(
    State(app): State<App>,
    Auth(caller): Auth,
    NamePath(name): NamePath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::UseSandboxes)?;
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().profile(&name).await?)
}

/// List extensions
#[utoipa::path(
    get, path = "/v1/extensions", tag = "catalog",
    responses((status = 200, description = "All, with whether each can be used now", body = Page<ExtensionView>), Errors)
)]
pub(crate) async fn list_extensions(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::UseSandboxes)?;
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &Page { items: app.engine().extensions().await, next_cursor: None })
}

/// Get an extension
#[utoipa::path(
    get, path = "/v1/extensions/{name}", tag = "catalog",
    params(("name" = String, Path, description = "Extension id", example = "ext.native")),
    responses((status = 200, description = "What it declares and what it lacks", body = ExtensionView), Errors)
)]
pub(crate) async fn get_extension(
    State(app): State<App>,
    Auth(caller): Auth,
    NamePath(name): NamePath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::UseSandboxes)?;
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().extension(&name).await?)
}

/// Explain the route of a create
///
/// Every candidate with its price, its measured latency, its health and the reason for or against it: those that fit
/// in the order in which they would be tried, then the others. Nothing is created. `extension` is null when none fits.
#[utoipa::path(
    post, path = "/v1/route", tag = "catalog",
    request_body(content = Option<CreateRequest>, example = json!({ "profile": "profile.agent-dev" })),
    responses((status = 200, description = "What a create would do", body = Plan), Errors)
)]
pub(crate) async fn explain_route(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
    OptionalJson(request): OptionalJson<CreateRequest>,
) -> ApiResult {
    caller.require(Action::UseSandboxes)?;
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().plan_for(&caller, &request).await?)
}

/// Estimate what a sandbox would cost
///
/// Line by line for the backend that would be taken; `route` has what the others ask. Nothing is created or held.
#[utoipa::path(
    post, path = "/v1/estimate", tag = "catalog",
    request_body(content = EstimateRequest, example = json!({ "profile": "profile.agent-dev", "duration": "1h" })),
    responses((status = 200, description = "The quote; absent when no backend fits", body = Estimate), Errors)
)]
pub(crate) async fn estimate(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
    JsonBody(request): JsonBody<EstimateRequest>,
) -> ApiResult {
    caller.require(Action::UseSandboxes)?;
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().estimate(&caller, &request).await?)
}
