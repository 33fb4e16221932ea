//! Balances, and what comes in.

use axum::extract::{RawQuery, State};
use http::StatusCode;
use sandboxer_core::ledger::Account;
use sandboxer_core::{Error, ErrorKind};
use sandboxer_engine::caller::Action;
use sandboxer_engine::{CreditRequest, Credited, Credits, LimitRequest};

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiResult, json, to_json};
use crate::idempotency::{self, IdempotencyKey};
use crate::json::JsonBody;
use crate::openapi::Errors;
use crate::query::Params;

/// Show balances and budgets
///
/// Operators see every account. An agent sees those of its own key and workspace, and the one that pays for it. `pays`
/// is the account that the caller's next sandbox is charged to; `balance` is what can be spent now, with `held` already
/// off.
#[utoipa::path(
    get, path = "/v1/credits", tag = "credits",
    params(("account" = Option<String>, Query, description = "Only this account", example = "workspace:research")),
    responses((status = 200, description = "Accounts and budgets", body = Credits), Errors)
)]
pub(crate) async fn show_credits(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    let params = Params::parse(query.as_deref(), &["account"])?;
    json(StatusCode::OK, &app.engine().credits(&caller, params.get("account")).await?)
}

/// Add credits, or put an account right
///
/// For operators of type `adm`. The first payment opens the account. The same `id`, or the same `Idempotency-Key` where
/// there is none, with the same content is the same payment; with another content it is 409. With `kind: adjustment`
/// the amount may be below zero: it puts a mistake right on an account that is open, and 402 is what would pass the
/// account's limit.
#[utoipa::path(
    post, path = "/v1/credits", tag = "credits",
    params(("Idempotency-Key" = Option<String>, Header, description = "The payment's `id` where the body has none")),
    request_body(content = CreditRequest, example = json!({
        "amount": "25.00", "account": "workspace:research", "memo": "invoice 17", "id": "invoice-17"
    })),
    responses((status = 201, description = "It is in the books", body = Credited), Errors)
)]
pub(crate) async fn add_credits(
    State(app): State<App>,
    Auth(caller): Auth,
    key: IdempotencyKey,
    RawQuery(query): RawQuery,
    JsonBody(mut request): JsonBody<CreditRequest>,
) -> ApiResult {
    caller.require(Action::ManageMoney)?;
    Params::parse(query.as_deref(), &[])?;
    // The key goes with the whole of what was asked. Where it is the id, the books themselves know it, for good.
    let asked = serde_json::to_value(&request).map_err(|source| {
        Error::new(ErrorKind::Internal, "a payment cannot be written as JSON").with_source(source)
    })?;
    if request.id.is_none() {
        request.id.clone_from(&key.0);
    }
    let work = async {
        let credited = app.engine().credits_add(&caller, &request).await?;
        Ok((StatusCode::CREATED, to_json(&credited)?))
    };
    idempotency::once(&app, &caller, key, "credits", || asked, work).await
}

/// Let an account go below zero
///
/// For operators of type `adm`. Opens the account if need be.
#[utoipa::path(
    put, path = "/v1/credits/limit", tag = "credits",
    request_body(content = LimitRequest, example = json!({ "account": "org:acme", "overdraft": "50.00" })),
    responses((status = 200, description = "The account as it stands now", body = Account), Errors)
)]
pub(crate) async fn limit_account(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
    JsonBody(request): JsonBody<LimitRequest>,
) -> ApiResult {
    caller.require(Action::ManageMoney)?;
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().credits_limit(&caller, &request).await?)
}
