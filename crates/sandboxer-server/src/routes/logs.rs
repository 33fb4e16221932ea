//! `GET …/logs`: what the backend itself logged.

use axum::extract::{RawQuery, State};

use super::files;
use crate::app::App;
use crate::auth::Auth;
use crate::error::ApiResult;
use crate::openapi::Errors;
use crate::path::SandboxPath;
use crate::query::Params;

/// Get the logs of a sandbox's backend
///
/// The services of a compose stack, the console of a machine; what commands wrote is at their execs.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/logs", tag = "sandboxes",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("follow" = Option<bool>, Query, description = "Go on as it comes")
    ),
    responses((status = 200, description = "As the backend has it", body = String, content_type = "text/plain"), Errors)
)]
pub(crate) async fn backend_logs(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    let follow = Params::parse(query.as_deref(), &["follow"])?.flag("follow")?;
    let logs = app.engine().backend_logs(&caller, id, follow).await?;
    Ok(files::download(logs, "text/plain; charset=utf-8"))
}
