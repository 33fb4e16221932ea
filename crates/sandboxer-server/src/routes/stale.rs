//! What is stale on the hosts, and its removal.

use axum::extract::{RawQuery, State};
use http::StatusCode;
use sandboxer_engine::caller::Action;
use sandboxer_engine::{ReapRequest, StaleReport};

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiResult, json};
use crate::json::OptionalJson;
use crate::openapi::Errors;
use crate::query::Params;

/// Look for what is stale
///
/// For operators. Everything that carries our tag and has no living row, rows with nothing behind them, and the hosts
/// that did not answer.
#[utoipa::path(
    get, path = "/v1/inspect/stale", tag = "inspect",
    params(("host" = Option<String>, Query, description = "Only this host")),
    responses((status = 200, description = "What was found; nothing is changed", body = StaleReport), Errors)
)]
pub(crate) async fn inspect_stale(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::Operate)?;
    let params = Params::parse(query.as_deref(), &["host"])?;
    json(StatusCode::OK, &app.engine().inspect_stale(&caller, params.get("host")).await?)
}

/// Show or remove what is stale
///
/// For operators. Without `apply` nothing is changed. What no row of this installation knows stays unless `unknown`.
#[utoipa::path(
    post, path = "/v1/reap-stale", tag = "inspect",
    request_body(content = Option<ReapRequest>, example = json!({ "apply": true })),
    responses((status = 200, description = "What was found and what became of it", body = StaleReport), Errors)
)]
pub(crate) async fn reap_stale(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
    OptionalJson(request): OptionalJson<ReapRequest>,
) -> ApiResult {
    caller.require(Action::Operate)?;
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().reap_stale(&caller, &request).await?)
}
