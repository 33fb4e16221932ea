//! The lines of the ledger, and a month of them as a statement.

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::IntoResponse;
use http::{HeaderValue, StatusCode, header};
use sandboxer_core::page::Page;
use sandboxer_core::{Error, ErrorKind};
use sandboxer_engine::caller::Action;
use sandboxer_engine::{EntryQuery, EntryView, Month, Statement, StatementFormat};

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
/// balance and all amounts add up to it. In CSV no cell is a formula. It is written while it is read: an answer that
/// broke off has no end.
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
    let format = params.typed("format")?.unwrap_or(StatementFormat::Json);
    let text = app.engine().statement(&caller, month, params.get("account"), format).await?;
    let kind = HeaderValue::from_static(match format {
        StatementFormat::Json => "application/json",
        StatementFormat::Csv => "text/csv; charset=utf-8",
    });
    let name = format!("attachment; filename=\"{}\"", text.file_name());
    let name = HeaderValue::try_from(name)
        .map_err(|source| Error::new(ErrorKind::Internal, "a name is not a header").with_source(source))?;
    let pieces = futures::stream::try_unfold(text, |mut text| async move {
        let piece = text.next().await.inspect_err(|error| {
            // The head of the answer is out: whoever reads it sees that it broke off.
            tracing::error!(error = ?error, "a statement broke off");
        })?;
        Ok::<_, Error>(piece.map(|piece| (piece, text)))
    });
    let mut response = ([(header::CONTENT_TYPE, kind)], Body::from_stream(pieces)).into_response();
    if format == StatementFormat::Csv {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}
