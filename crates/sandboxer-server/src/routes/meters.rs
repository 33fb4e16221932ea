//! What was used, interval by interval.

use axum::extract::{RawQuery, State};
use http::StatusCode;
use sandboxer_core::ledger::Meter;
use sandboxer_core::page::Page;
use sandboxer_store::MeterFilter;

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiResult, json};
use crate::openapi::Errors;
use crate::query::Params;

/// List meters, newest first
///
/// Agents see those of their own sandboxes. A meter without `ended_at` still runs.
#[utoipa::path(
    get, path = "/v1/meters", tag = "credits",
    params(
        ("sandbox" = Option<String>, Query, description = "Only those of this sandbox"),
        ("extension" = Option<String>, Query, description = "Only those of this extension"),
        ("from" = Option<String>, Query, description = "Begun from this moment or day on", example = "2026-11-01"),
        ("until" = Option<String>, Query, description = "Begun before this moment or day"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("limit" = Option<u32>, Query, description = "Items on a page, 1 to 1000", example = 100)
    ),
    responses((status = 200, description = "A page", body = Page<Meter>), Errors)
)]
pub(crate) async fn list_meters(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    let known = ["sandbox", "extension", "from", "until", "cursor", "limit"];
    let params = Params::parse(query.as_deref(), &known)?;
    let filter = MeterFilter {
        sandbox: params.typed("sandbox")?,
        extension: params.get("extension").map(str::to_owned),
        owner_key: None,
        from: params.moment("from")?,
        until: params.moment("until")?,
    };
    let page = app.engine().meters(&caller, filter, params.get("cursor"), params.limit()?).await?;
    json(StatusCode::OK, &page)
}
