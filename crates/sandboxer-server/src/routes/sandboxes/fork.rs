//! `POST …/fork`.

use axum::extract::{RawQuery, State};
use http::StatusCode;
use sandboxer_engine::{ForkRequest, Forked};
use serde_json::json as value;

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiError, ApiResult, to_json};
use crate::idempotency::{self, IdempotencyKey};
use crate::json::OptionalJson;
use crate::openapi::Errors;
use crate::path::SandboxPath;
use crate::query::Params;

/// Fork a sandbox
///
/// Makes copies that go on from where it stands. Those that were made are in `items`, why others were not in `errors`;
/// an error answer means that there is none.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/fork", tag = "snapshots",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Done once for the same key and body")
    ),
    request_body(content = Option<ForkRequest>, example = json!({ "count": 3 })),
    responses((status = 201, description = "Made, at least in part", body = Forked), Errors)
)]
pub(crate) async fn fork_sandbox(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    key: IdempotencyKey,
    RawQuery(query): RawQuery,
    OptionalJson(request): OptionalJson<ForkRequest>,
) -> ApiResult {
    Params::parse(query.as_deref(), &[])?;
    let asked = || value!([id, request]);
    let work = async {
        let forked = app.engine().fork(&caller, id, request.clone()).await?;
        Ok::<_, ApiError>((StatusCode::CREATED, to_json(&forked)?))
    };
    idempotency::once(&app, &caller, key, "fork", asked, work).await
}
