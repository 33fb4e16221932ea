//! Budgets: how much somebody may spend in a day or a month. They are listed with the balances.

use axum::extract::{RawQuery, State};
use http::StatusCode;
use sandboxer_core::Error;
use sandboxer_core::ErrorKind;
use sandboxer_core::ledger::Budget;
use sandboxer_engine::BudgetRequest;
use sandboxer_engine::caller::Action;

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiResult, json};
use crate::json::JsonBody;
use crate::openapi::Errors;
use crate::query::Params;

/// Set a budget
///
/// For operators of type `adm`. A create that would pass it is refused with 402 before anything is made; what is held
/// counts in full until the sandbox ends.
#[utoipa::path(
    put, path = "/v1/credits/budgets", tag = "credits",
    request_body(content = BudgetRequest, example = json!({
        "subject": "actor:acme/agt", "period": "day", "limit": "5.00"
    })),
    responses((status = 200, description = "The budget with what was used of it", body = Budget), Errors)
)]
pub(crate) async fn set_budget(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
    JsonBody(request): JsonBody<BudgetRequest>,
) -> ApiResult {
    caller.require(Action::ManageMoney)?;
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().budget_set(&caller, &request).await?)
}

/// Remove a budget
///
/// For operators of type `adm`.
#[utoipa::path(
    delete, path = "/v1/credits/budgets", tag = "credits",
    params(
        ("subject" = String, Query, description = "Whose", example = "actor:acme/agt"),
        ("period" = String, Query, description = "`day` or `month`", example = "day")
    ),
    responses((status = 200, description = "What it was", body = Budget), Errors)
)]
pub(crate) async fn remove_budget(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::ManageMoney)?;
    let params = Params::parse(query.as_deref(), &["subject", "period"])?;
    let period = params.typed("period")?.ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, "the parameter `period` is missing").with_hint("`day` or `month`")
    })?;
    json(StatusCode::OK, &app.engine().budget_remove(&caller, params.required("subject")?, period).await?)
}
