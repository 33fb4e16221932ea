//! The lines of the ledger, and a month of them as a statement.

use axum::extract::{RawQuery, State};
use axum::response::IntoResponse;
use http::{HeaderValue, StatusCode, header};
use sandboxer_core::page::Page;
use sandboxer_core::{Error, ErrorKind};
use sandboxer_engine::caller::Action;
use sandboxer_engine::{EntryQuery, EntryView, Month, Statement};

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiResult, json};
use crate::openapi::Errors;
use crate::query::Params;

/// List entries of the ledger
///
/// Oldest first, of the account that pays for the caller unless another is named; with `sandbox` everything that was
/// moved for it. Agents see what was moved for their own sandboxes, and no balance of their
/// organisation. Entries are never changed.
#[utoipa::path(
    get, path = "/v1/credits/entries", tag = "credits",
    params(
        ("account" = Option<String>, Query, description = "An account; `all` for every one of them"),
        ("sandbox" = Option<String>, Query, description = "Only those of this sandbox"),
        ("from" = Option<String>, Query, description = "From this moment or day on", example = "2026-11-01"),
        ("until" = Option<String>, Query, description = "Before this moment or day"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("limit" = Option<u32>, Query, description = "Items on a page, 1 to 1000", example = 100)
    ),
    responses((status = 200, description = "A page", body = Page<EntryView>), Errors)
)]
pub(crate) async fn list_entries(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::UseSandboxes)?;
    let known = ["account", "sandbox", "from", "until", "cursor", "limit"];
    let params = Params::parse(query.as_deref(), &known)?;
    let asked = EntryQuery {
        account: params.get("account").map(str::to_owned),
        sandbox: params.typed("sandbox")?,
        from: params.moment("from")?,
        until: params.moment("until")?,
    };
    let page = app.engine().credit_entries(&caller, &asked, params.get("cursor"), params.limit()?).await?;
    json(StatusCode::OK, &page)
}

/// Get the statement of a month
///
/// The opening balance, every entry, what was used at which extension and meter, and the closing balance: the opening
/// balance and all amounts add up to it. In CSV no cell is a formula.
#[utoipa::path(
    get, path = "/v1/credits/statement", tag = "credits",
    params(
        ("month" = String, Query, description = "In UTC", example = "2026-11"),
        ("account" = Option<String>, Query, description = "Otherwise the account that pays for the caller"),
        ("format" = Option<String>, Query, description = "`json` or `csv`", example = "json")
    ),
    responses(
        (status = 200, description = "The statement", content(
            (Statement = "application/json"),
            (String = "text/csv")
        )),
        Errors
    )
)]
pub(crate) async fn get_statement(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    let params = Params::parse(query.as_deref(), &["month", "account", "format"])?;
    let month: Month = params.required("month")?.parse()?;
    let statement = app.engine().statement(&caller, month, params.get("account")).await?;
    match params.get("format") {
        None | Some("json") => json(StatusCode::OK, &statement),
        Some("csv") => {
            let kind = HeaderValue::from_static("text/csv; charset=utf-8");
            let name = format!("attachment; filename=\"statement-{}.csv\"", statement.month);
            let name = HeaderValue::try_from(name).map_err(|source| {
                Error::new(ErrorKind::Internal, "a name is not a header").with_source(source)
            })?;
            let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)];
            Ok((headers, statement.to_csv()?).into_response())
        }
        Some(other) => {
            let shown = sandboxer_core::suggest::printable(other);
            Err(Error::new(ErrorKind::InvalidInput, format!("a statement has no format `{shown}`"))
                .with_hint("`json` or `csv`")
                .into())
        }
    }
}
