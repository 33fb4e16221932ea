//! `POST …/execs/{exec}/stdin` and `…/signal`: what a background exec is told.

use axum::body::Body;
use axum::extract::{RawQuery, State};
use http::{HeaderMap, StatusCode};

use crate::app::App;
use crate::auth::Auth;
use crate::error::ApiError;
use crate::json::{JsonBody, read_bounded};
use crate::openapi::Errors;
use crate::path::ExecPath;
use crate::query::Params;

/// Feed a background exec
///
/// Raw bytes, at most 1 MiB at a time. With `eof` its input ends after them.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/execs/{exec}/stdin", tag = "execs",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("exec" = String, Path, description = "Exec id"),
        ("eof" = Option<bool>, Query, description = "Nothing more will come")
    ),
    request_body(content = String, content_type = "application/octet-stream"),
    responses((status = 204, description = "Taken"), Errors)
)]
pub(crate) async fn exec_stdin(
    State(app): State<App>,
    Auth(caller): Auth,
    ExecPath(id, exec): ExecPath,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let eof = Params::parse(query.as_deref(), &["eof"])?.flag("eof")?;
    let data = read_bounded(&headers, body, app.limits().json_body).await?;
    if !data.is_empty() {
        app.engine().exec_stdin(&caller, id, exec, Some(data.into())).await?;
    }
    if eof {
        app.engine().exec_stdin(&caller, id, exec, None).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

#[derive(serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignalRequest {
    /// 1 to 64; 15 asks a command to end, 9 makes it.
    signal: i32,
}

/// Send a signal to a background exec
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/execs/{exec}/signal", tag = "execs",
    params(("id" = String, Path, description = "Sandbox id"), ("exec" = String, Path, description = "Exec id")),
    request_body(content = SignalRequest, example = json!({ "signal": 15 })),
    responses((status = 204, description = "Sent"), Errors)
)]
pub(crate) async fn exec_signal(
    State(app): State<App>,
    Auth(caller): Auth,
    ExecPath(id, exec): ExecPath,
    RawQuery(query): RawQuery,
    JsonBody(request): JsonBody<SignalRequest>,
) -> Result<StatusCode, ApiError> {
    Params::parse(query.as_deref(), &[])?;
    app.engine().exec_signal(&caller, id, exec, request.signal).await?;
    Ok(StatusCode::NO_CONTENT)
}
