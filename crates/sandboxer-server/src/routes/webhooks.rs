//! Endpoints that events are posted to. A secret is shown once, in the answer that made it.

use axum::extract::{FromRequestParts, RawQuery, State};
use http::StatusCode;
use http::request::Parts;
use sandboxer_core::page::Page;
use sandboxer_core::{Dur, WebhookId};
use sandboxer_engine::caller::Action;
use sandboxer_engine::{Caller, NewWebhook, NewWebhookView, WebhookAnswer, WebhookView};
use serde_json::json as value;

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiError, ApiResult, json, to_json};
use crate::idempotency::{self, IdempotencyKey, Turn};
use crate::json::{JsonBody, OptionalJson};
use crate::openapi::Errors;
use crate::path::WebhookPath;
use crate::query::Params;

/// List webhooks
///
/// For operators of type `adm`. Newest first, with what waits and what was given up.
#[utoipa::path(
    get, path = "/v1/webhooks", tag = "events",
    responses((status = 200, description = "All, without their secrets", body = Page<WebhookView>), Errors)
)]
pub(crate) async fn list_webhooks(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::ManageMoney)?;
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &Page { items: app.engine().webhook_list(&caller).await?, next_cursor: None })
}

/// Add a webhook
///
/// For operators of type `adm`. Events are posted as CloudEvents with Standard Webhooks signatures, in order for each
/// sandbox, at least once. A repeat with the same `Idempotency-Key` answers 200 without the secret, which is not shown
/// again.
#[utoipa::path(
    post, path = "/v1/webhooks", tag = "events",
    params(("Idempotency-Key" = Option<String>, Header, description = "Made once for the same key and body")),
    request_body(content = NewWebhook, example = json!({
        "url": "https://example.org/hooks/sandboxer", "events": ["sandbox.*", "meter.recorded"]
    })),
    responses(
        (status = 201, description = "Made; the secret is shown this once", body = NewWebhookView),
        (status = 200, description = "Made before under this `Idempotency-Key`", body = WebhookView),
        Errors
    )
)]
pub(crate) async fn add_webhook(
    State(app): State<App>,
    Auth(caller): Auth,
    key: IdempotencyKey,
    RawQuery(query): RawQuery,
    JsonBody(request): JsonBody<NewWebhook>,
) -> ApiResult {
    caller.require(Action::ManageMoney)?;
    Params::parse(query.as_deref(), &[])?;
    let ticket = match idempotency::begin(&app, &caller, key, "webhooks", || value!(request)).await? {
        Turn::Again(response) => return Ok(response),
        Turn::First(ticket) => Some(ticket),
        Turn::Free => None,
    };
    let made = match app.engine().webhook_create(&caller, request).await {
        Ok(made) => made,
        Err(error) => {
            if let Some(ticket) = ticket {
                ticket.forget().await?;
            }
            return Err(error.into());
        }
    };
    if let Some(ticket) = ticket {
        ticket.keep(&(StatusCode::OK, to_json(&made.webhook)?)).await?;
    }
    json(StatusCode::CREATED, &made)
}

/// One webhook that somebody who may asks about, without parameters.
pub(crate) struct Asked {
    app: App,
    caller: Caller,
    id: WebhookId,
}

impl FromRequestParts<App> for Asked {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> ApiResult<Self> {
        let Auth(caller) = Auth::from_request_parts(parts, app).await?;
        let WebhookPath(id) = WebhookPath::from_request_parts(parts, app).await?;
        caller.require(Action::ManageMoney)?;
        Params::parse(parts.uri.query(), &[])?;
        Ok(Self { app: app.clone(), caller, id })
    }
}

/// Get a webhook
///
/// For operators of type `adm`.
#[utoipa::path(
    get, path = "/v1/webhooks/{id}", tag = "events",
    params(("id" = String, Path, description = "Webhook id")),
    responses((status = 200, description = "The webhook", body = WebhookView), Errors)
)]
pub(crate) async fn get_webhook(Asked { app, caller, id }: Asked) -> ApiResult {
    json(StatusCode::OK, &app.engine().webhook_get(&caller, id).await?)
}

/// Remove a webhook
///
/// For operators of type `adm`. With what waits for it, and its secrets.
#[utoipa::path(
    delete, path = "/v1/webhooks/{id}", tag = "events",
    params(("id" = String, Path, description = "Webhook id")),
    responses((status = 200, description = "What it was", body = WebhookView), Errors)
)]
pub(crate) async fn remove_webhook(Asked { app, caller, id }: Asked) -> ApiResult {
    json(StatusCode::OK, &app.engine().webhook_remove(&caller, id).await?)
}

#[derive(Default, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateRequest {
    /// How long the old secret signs beside the new one; a day where absent.
    #[serde(default)]
    overlap: Option<Dur>,
}

/// Make a new secret for a webhook
///
/// For operators of type `adm`. Until the overlap is over each delivery has two signatures, one of each secret.
#[utoipa::path(
    post, path = "/v1/webhooks/{id}/rotate", tag = "events",
    params(("id" = String, Path, description = "Webhook id")),
    request_body(content = Option<RotateRequest>, example = json!({ "overlap": "1d" })),
    responses((status = 200, description = "The secret is shown this once", body = NewWebhookView), Errors)
)]
pub(crate) async fn rotate_webhook(
    Asked { app, caller, id }: Asked,
    OptionalJson(request): OptionalJson<RotateRequest>,
) -> ApiResult {
    json(StatusCode::OK, &app.engine().webhook_rotate(&caller, id, request.overlap).await?)
}

/// Enable a webhook
///
/// For operators of type `adm`. One that answered 410, or that failed for days, was disabled.
#[utoipa::path(
    post, path = "/v1/webhooks/{id}/enable", tag = "events",
    params(("id" = String, Path, description = "Webhook id")),
    responses((status = 200, description = "Enabled", body = WebhookView), Errors)
)]
pub(crate) async fn enable_webhook(Asked { app, caller, id }: Asked) -> ApiResult {
    json(StatusCode::OK, &app.engine().webhook_enable(&caller, id, true).await?)
}

/// Disable a webhook
///
/// For operators of type `adm`. What waits for it becomes dead letters, which can be replayed.
#[utoipa::path(
    post, path = "/v1/webhooks/{id}/disable", tag = "events",
    params(("id" = String, Path, description = "Webhook id")),
    responses((status = 200, description = "Disabled", body = WebhookView), Errors)
)]
pub(crate) async fn disable_webhook(Asked { app, caller, id }: Asked) -> ApiResult {
    json(StatusCode::OK, &app.engine().webhook_enable(&caller, id, false).await?)
}

/// Test a webhook
///
/// For operators of type `adm`. Sends a `webhook.test` event now and tells what came back.
#[utoipa::path(
    post, path = "/v1/webhooks/{id}/test", tag = "events",
    params(("id" = String, Path, description = "Webhook id")),
    responses((status = 200, description = "What came back", body = WebhookAnswer), Errors)
)]
pub(crate) async fn test_webhook(Asked { app, caller, id }: Asked) -> ApiResult {
    json(StatusCode::OK, &app.engine().webhook_test(&caller, id).await?)
}
