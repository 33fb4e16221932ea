//! For whoever watches the server: is it up, can it work, what does it count, what does it offer.

use std::sync::OnceLock;
use std::time::Duration;

use axum::extract::State;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use sandboxer_core::{Error, ErrorKind};
use sandboxer_engine::caller::Action;
use serde_json::json as value;

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiError, ApiResult, json};
use crate::openapi::Errors;

/// A store that takes longer is not ready.
const PING_WITHIN: Duration = Duration::from_secs(2);

/// Whether the process is up
#[utoipa::path(
    get, path = "/healthz", tag = "server", security(()),
    responses((status = 200, description = "It is", body = serde_json::Value, example = json!({ "status": "ok" })))
)]
pub(crate) async fn healthz() -> ApiResult {
    json(StatusCode::OK, &value!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

/// Whether it can take requests
#[utoipa::path(
    get, path = "/readyz", tag = "server", security(()),
    responses(
        (status = 200, description = "It can", body = serde_json::Value, example = json!({ "status": "ready" })),
        (status = 503, description = "It is stopping, or the store does not answer", body = crate::error::Envelope)
    )
)]
pub(crate) async fn readyz(State(app): State<App>) -> ApiResult {
    if app.draining().is_cancelled() {
        return Err(ApiError::new(ErrorKind::NoBackend, "the server is stopping"));
    }
    let answered = tokio::time::timeout(PING_WITHIN, app.engine().store().ping()).await;
    match answered {
        Ok(Ok(())) => json(StatusCode::OK, &value!({ "status": "ready" })),
        Ok(Err(error)) => Err(not_ready().with_source(error).into()),
        Err(_) => Err(not_ready().into()),
    }
}

fn not_ready() -> Error {
    Error::new(ErrorKind::NoBackend, "the store does not answer")
}

/// Metrics for Prometheus
///
/// For operators.
#[utoipa::path(
    get, path = "/metrics", tag = "server",
    responses((status = 200, description = "Prometheus text", body = String, content_type = "text/plain"), Errors)
)]
pub(crate) async fn metrics(State(app): State<App>, Auth(caller): Auth) -> ApiResult {
    caller.require(Action::Operate)?;
    let text = app.metrics().render(app.engine()).await?;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// This document
#[utoipa::path(
    get, path = "/openapi.json", tag = "server", security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value))
)]
pub(crate) async fn openapi_document() -> ApiResult {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let document = DOCUMENT.get_or_init(|| serde_json::to_vec(&crate::openapi()).unwrap_or_default().into());
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], document.clone())
        .into_response())
}
