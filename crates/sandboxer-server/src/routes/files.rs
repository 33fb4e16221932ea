//! Files in a sandbox. Paths are resolved by the backend, inside the sandbox.

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sandboxer_core::exec::BoxRead;
use sandboxer_core::files::{FileInfo, FileKind, validate_path};
use sandboxer_core::page::Page;
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};
use tokio_util::io::ReaderStream;

use super::upload;
use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiError, ApiResult, json};
use crate::json::JsonBody;
use crate::openapi::Errors;
use crate::path::SandboxPath;
use crate::query::Params;

const PIECE: usize = 64 << 10;
const DEFAULT_MODE: u32 = 0o644;

/// Read a file
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/files", tag = "files",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("path" = String, Query, description = "Absolute, or below the working directory")
    ),
    responses((status = 200, description = "Its bytes", body = String, content_type = "application/octet-stream"), Errors)
)]
pub(crate) async fn read_file(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    let params = Params::parse(query.as_deref(), &["path"])?;
    let data = app.engine().file_read(&caller, id, params.required("path")?).await?;
    Ok(download(data, "application/octet-stream"))
}

/// Bytes from inside a sandbox, which no browser may take for a page.
pub(super) fn download(data: BoxRead, kind: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, Body::from_stream(ReaderStream::with_capacity(data, PIECE))).into_response()
}

/// Ask what a file is, in headers
#[utoipa::path(
    head, path = "/v1/sandboxes/{id}/files", tag = "files",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("path" = String, Query, description = "Absolute, or below the working directory")
    ),
    responses(
        (status = 200, description = "It is there", headers(
            ("Content-Length" = u64, description = "Its size"),
            ("X-File-Kind" = String, description = "`file`, `directory`, `symlink` or `other`"),
            ("X-File-Mode" = String, description = "Permission bits in octal")
        )),
        Errors
    )
)]
pub(crate) async fn head_file(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    let params = Params::parse(query.as_deref(), &["path"])?;
    let info = app.engine().file_stat(&caller, id, params.required("path")?).await?;
    let mode = HeaderValue::try_from(&info.mode)
        .map_err(|source| Error::new(ErrorKind::Internal, "a mode is not a header").with_source(source))?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_LENGTH, HeaderValue::from(info.size)),
        (header::HeaderName::from_static("x-file-kind"), HeaderValue::from_static(kind_name(info.kind))),
        (header::HeaderName::from_static("x-file-mode"), mode),
    ];
    Ok((headers, Body::empty()).into_response())
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Other => "other",
    }
}

/// Write a file, or make a directory
///
/// Parents are made. What was there is replaced at once or not at all.
#[utoipa::path(
    put, path = "/v1/sandboxes/{id}/files", tag = "files",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("path" = String, Query, description = "Absolute, or below the working directory"),
        ("mode" = Option<String>, Query, description = "Permission bits in octal", example = "0644"),
        ("type" = Option<String>, Query, description = "`file` or `directory`")
    ),
    request_body(content = String, content_type = "application/octet-stream"),
    responses((status = 204, description = "Written"), Errors)
)]
pub(crate) async fn write_file(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let params = Params::parse(query.as_deref(), &["path", "mode", "type"])?;
    let path = params.required("path")?;
    match params.get("type").unwrap_or("file") {
        "directory" => app.engine().file_mkdir(&caller, id, path).await?,
        "file" => {
            let mode = params.get("mode").map_or(Ok(DEFAULT_MODE), octal)?;
            let (upload, data) = upload::begin(&app, &headers, body)?;
            upload.settle(app.engine().file_write(&caller, id, path, mode, data).await)?;
        }
        other => {
            return Err(ApiError::new(
                ErrorKind::InvalidInput,
                format!("`{}` is not a type", printable(other)),
            )
            .hint("`file` or `directory`"));
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

fn octal(text: &str) -> Result<u32> {
    u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777).ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, format!("`{}` is not a file mode", printable(text)))
            .with_hint("up to four octal digits, such as `0644`")
    })
}

/// Delete a file or a directory
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}/files", tag = "files",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("path" = String, Query, description = "Absolute, or below the working directory"),
        ("recursive" = Option<bool>, Query, description = "Also what is in the directory")
    ),
    responses((status = 204, description = "Gone"), Errors)
)]
pub(crate) async fn delete_file(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    RawQuery(query): RawQuery,
) -> Result<StatusCode, ApiError> {
    let params = Params::parse(query.as_deref(), &["path", "recursive"])?;
    let (path, recursive) = (params.required("path")?, params.flag("recursive")?);
    app.engine().file_delete(&caller, id, path, recursive).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List a directory
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/files/list", tag = "files",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("path" = String, Query, description = "A directory")
    ),
    responses((status = 200, description = "Its entries", body = Page<FileInfo>), Errors)
)]
pub(crate) async fn list_files(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    let params = Params::parse(query.as_deref(), &["path"])?;
    let items = app.engine().file_list(&caller, id, params.required("path")?).await?;
    json(StatusCode::OK, &Page { items, next_cursor: None })
}

/// Ask what a file is
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/files/stat", tag = "files",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("path" = String, Query, description = "Absolute, or below the working directory")
    ),
    responses((status = 200, description = "The entry itself; a link is not followed", body = FileInfo), Errors)
)]
pub(crate) async fn stat_file(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    let params = Params::parse(query.as_deref(), &["path"])?;
    json(StatusCode::OK, &app.engine().file_stat(&caller, id, params.required("path")?).await?)
}

#[derive(serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MoveRequest {
    from: String,
    to: String,
}

/// Move a file or a directory
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/files/move", tag = "files",
    params(("id" = String, Path, description = "Sandbox id")),
    request_body(content = MoveRequest, example = json!({ "from": "/workspace/a", "to": "/workspace/b" })),
    responses((status = 204, description = "Moved"), Errors)
)]
pub(crate) async fn move_file(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    RawQuery(query): RawQuery,
    JsonBody(request): JsonBody<MoveRequest>,
) -> Result<StatusCode, ApiError> {
    Params::parse(query.as_deref(), &[])?;
    validate_path(&request.to)?;
    app.engine().file_rename(&caller, id, &request.from, &request.to).await?;
    Ok(StatusCode::NO_CONTENT)
}
