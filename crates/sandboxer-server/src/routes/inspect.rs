//! What the machine and the backends say, beside what the store remembers.

use axum::extract::{RawQuery, State};
use http::StatusCode;
use sandboxer_engine::caller::Action;
use sandboxer_engine::{HostReport, SandboxInspection};

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiResult, json};
use crate::openapi::Errors;
use crate::path::SandboxPath;
use crate::query::Params;

/// Look at a host
///
/// For operators. The machine of the server, unless another host is named. A host that does not answer is shown as it
/// was last seen, with `reachable: false`.
#[utoipa::path(
    get, path = "/v1/inspect/host", tag = "inspect",
    params(("host" = Option<String>, Query, description = "The name of the host", example = "local")),
    responses((status = 200, description = "Facts about the machine, and what lives on it", body = HostReport), Errors)
)]
pub(crate) async fn inspect_host(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::Operate)?;
    let params = Params::parse(query.as_deref(), &["host"])?;
    json(StatusCode::OK, &app.engine().inspect_host(&caller, params.get("host")).await?)
}

/// Look into a sandbox
#[utoipa::path(
    get, path = "/v1/inspect/sandboxes/{id}", tag = "inspect",
    params(("id" = String, Path, description = "Sandbox id")),
    responses((status = 200, description = "The row and what the backend says", body = SandboxInspection), Errors)
)]
pub(crate) async fn inspect_sandbox(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &app.engine().inspect_sandbox(&caller, id).await?)
}
