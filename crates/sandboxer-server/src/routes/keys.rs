//! API keys. A secret is shown once, in the answer that made it, and is kept nowhere.

use axum::extract::{RawQuery, State};
use http::StatusCode;
use jiff::Timestamp;
use sandboxer_core::ledger::Seat;
use sandboxer_core::page::Page;
use sandboxer_core::{Actor, Dur, KeyId};
use sandboxer_engine::caller::Action;
use sandboxer_store::KeyRecord;
use serde::{Deserialize, Serialize};
use serde_json::json as value;

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiResult, json, to_json};
use crate::idempotency::{self, IdempotencyKey, Turn};
use crate::json::JsonBody;
use crate::openapi::Errors;
use crate::path::KeyPath;
use crate::query::Params;

/// A key without its secret and its hash.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct KeyView {
    key_id: KeyId,
    name: String,
    actor: Actor,
    /// Who pays for what it creates, if no account of its own was opened.
    organisation: String,
    workspace: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    revoked_at: Option<Timestamp>,
}

impl From<KeyRecord> for KeyView {
    fn from(key: KeyRecord) -> Self {
        let KeyRecord {
            key_id,
            name,
            actor,
            organisation,
            workspace,
            created_at,
            expires_at,
            revoked_at,
            ..
        } = key;
        Self { key_id, name, actor, organisation, workspace, created_at, expires_at, revoked_at }
    }
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct NewKeyView {
    #[serde(flatten)]
    key: KeyView,
    /// Shown this once.
    #[schema(example = "sbk_…")]
    secret: String,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewKeyRequest {
    name: String,
    actor: Actor,
    /// Without it the key is valid until it is revoked.
    #[serde(default)]
    expires_in: Option<Dur>,
    /// Whose credits it spends; `default` where absent.
    #[serde(default = "default_name")]
    organisation: String,
    #[serde(default = "default_name")]
    workspace: String,
}

fn default_name() -> String {
    sandboxer_core::ledger::DEFAULT.to_owned()
}

/// List API keys
///
/// For operators of type `adm`. Newest first, revoked ones included.
#[utoipa::path(
    get, path = "/v1/keys", tag = "keys",
    responses((status = 200, description = "All, without their secrets", body = Page<KeyView>), Errors)
)]
pub(crate) async fn list_keys(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::ManageKeys)?;
    Params::parse(query.as_deref(), &[])?;
    let items: Vec<KeyView> = app.engine().key_list(&caller).await?.into_iter().map(KeyView::from).collect();
    json(StatusCode::OK, &Page { items, next_cursor: None })
}

/// Make an API key
///
/// The first one closes the door for callers without a key. A repeat with the same `Idempotency-Key` answers 200 with
/// the same key and without its secret, which is kept nowhere.
#[utoipa::path(
    post, path = "/v1/keys", tag = "keys",
    params(("Idempotency-Key" = Option<String>, Header, description = "Made once for the same key and body")),
    request_body(content = NewKeyRequest, example = json!({ "name": "ci", "actor": "atm", "expires_in": "30d" })),
    responses(
        (status = 201, description = "Made; the secret is shown this once", body = NewKeyView),
        (status = 200, description = "Made before under this `Idempotency-Key`", body = KeyView),
        Errors
    )
)]
pub(crate) async fn create_key(
    State(app): State<App>,
    Auth(caller): Auth,
    key: IdempotencyKey,
    RawQuery(query): RawQuery,
    JsonBody(request): JsonBody<NewKeyRequest>,
) -> ApiResult {
    caller.require(Action::ManageKeys)?;
    Params::parse(query.as_deref(), &[])?;
    let ticket = match idempotency::begin(&app, &caller, key, "keys", || value!(request)).await? {
        Turn::Again(response) => return Ok(response),
        Turn::First(ticket) => Some(ticket),
        Turn::Free => None,
    };
    let seat = Seat { organisation: request.organisation.clone(), workspace: request.workspace.clone() };
    let made = app.engine().key_create(&caller, &request.name, request.actor, request.expires_in, seat).await;
    app.keys().forget();
    let made = match made {
        Ok(made) => made,
        Err(error) => {
            if let Some(ticket) = ticket {
                ticket.forget().await?;
            }
            return Err(error.into());
        }
    };
    let key = KeyView::from(made.record);
    if let Some(ticket) = ticket {
        ticket.keep(&(StatusCode::OK, to_json(&key)?)).await?;
    }
    json(StatusCode::CREATED, &NewKeyView { key, secret: made.secret })
}

/// Revoke an API key
///
/// At once, and for good. Twice gives the same answer.
#[utoipa::path(
    delete, path = "/v1/keys/{id}", tag = "keys",
    params(("id" = String, Path, description = "Key id")),
    responses((status = 200, description = "Revoked", body = KeyView), Errors)
)]
pub(crate) async fn revoke_key(
    State(app): State<App>,
    Auth(caller): Auth,
    KeyPath(id): KeyPath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::ManageKeys)?;
    Params::parse(query.as_deref(), &[])?;
    let revoked = app.engine().key_revoke(&caller, id).await;
    app.keys().forget();
    json(StatusCode::OK, &KeyView::from(revoked?))
}
