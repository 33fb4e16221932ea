//! Whether the books are right, and whether a provider's agree with them.

use axum::extract::{RawQuery, Request, State};
use http::{StatusCode, header};
use sandboxer_core::Money;
use sandboxer_engine::caller::Action;
use sandboxer_engine::{BooksAudit, MOST_USAGE_BYTES, UsageFormat, UsageImport, UsageReport};

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiError, ApiResult, json};
use crate::json::read_bounded;
use crate::openapi::Errors;
use crate::query::Params;

/// Audit the books
///
/// For operators. Adds up everything: each transaction to zero, each balance from its entries, each hold to a sandbox.
#[utoipa::path(
    get, path = "/v1/credits/audit", tag = "credits",
    responses((status = 200, description = "What is wrong, which is nothing", body = BooksAudit), Errors)
)]
pub(crate) async fn audit_books(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().credits_audit(&caller).await?)
}

/// Compare a provider's usage export with our meters
///
/// For operators of type `adm`. The body is CSV whose first line names the columns, or JSON as a list of objects: `tag`
/// (or `sandbox_id`), `cost`, and `seconds` or `started_at` with `ended_at`. At most 8 MiB. Nothing is changed by it.
#[utoipa::path(
    post, path = "/v1/credits/reconcile", tag = "credits",
    params(
        ("extension" = String, Query, description = "Whose export it is", example = "ext.e2b"),
        ("from" = Option<String>, Query, description = "Ours from this moment or day on; otherwise what the export begins with"),
        ("until" = Option<String>, Query, description = "Ours before this moment or day"),
        ("tolerance" = Option<String>, Query, description = "Differences up to this much for a sandbox are called equal", example = "0.01")
    ),
    request_body(content(
        (String = "text/csv", example = "tag,started_at,ended_at,cost\nsbx_…,2026-11-16T10:00:00Z,2026-11-16T11:00:00Z,0.0504\n"),
        (Vec<serde_json::Value> = "application/json")
    )),
    responses((status = 200, description = "What agrees and what does not", body = UsageReport), Errors)
)]
pub(crate) async fn reconcile(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
    request: Request,
) -> ApiResult {
    caller.require(Action::ManageMoney)?;
    let params = Params::parse(query.as_deref(), &["extension", "from", "until", "tolerance"])?;
    let (parts, body) = request.into_parts();
    let kind =
        parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let format = match kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "text/csv" => UsageFormat::Csv,
        "application/json" => UsageFormat::Json,
        _ => {
            return Err(ApiError::edge(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                "the export is neither marked as CSV nor as JSON",
            )
            .hint("send `Content-Type: text/csv` or `application/json`"));
        }
    };
    let import = UsageImport {
        extension: params.required("extension")?.to_owned(),
        format,
        from: params.moment("from")?,
        until: params.moment("until")?,
        tolerance: params.typed("tolerance")?.unwrap_or(Money::ZERO),
        content: read_bounded(&parts.headers, body, MOST_USAGE_BYTES).await?.into(),
    };
    json(StatusCode::OK, &app.engine().reconcile_usage(&caller, &import).await?)
}
