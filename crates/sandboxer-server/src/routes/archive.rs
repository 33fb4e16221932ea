//! Whole folders as tar streams.

use axum::body::Body;
use axum::extract::{RawQuery, State};
use http::{HeaderMap, StatusCode};

use super::{files, upload};
use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiError, ApiResult};
use crate::openapi::Errors;
use crate::path::SandboxPath;
use crate::query::Params;

/// Get a directory as a tar
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/archive", tag = "files",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("path" = String, Query, description = "What to pack")
    ),
    responses((status = 200, description = "The archive", body = String, content_type = "application/x-tar"), Errors)
)]
pub(crate) async fn get_archive(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    let params = Params::parse(query.as_deref(), &["path"])?;
    let tar = app.engine().archive_get(&caller, id, params.required("path")?).await?;
    Ok(files::download(tar, "application/x-tar"))
}

/// Unpack a tar below a directory
#[utoipa::path(
    put, path = "/v1/sandboxes/{id}/archive", tag = "files",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("path" = String, Query, description = "Where to unpack; it is made")
    ),
    request_body(content = String, content_type = "application/x-tar"),
    responses((status = 204, description = "Unpacked"), Errors)
)]
pub(crate) async fn put_archive(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let params = Params::parse(query.as_deref(), &["path"])?;
    let (upload, tar) = upload::begin(&app, &headers, body)?;
    upload.settle(app.engine().archive_put(&caller, id, params.required("path")?, tar).await)?;
    Ok(StatusCode::NO_CONTENT)
}
