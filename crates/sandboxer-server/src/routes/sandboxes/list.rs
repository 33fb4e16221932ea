//! `GET /v1/sandboxes`.

use axum::extract::{RawQuery, State};
use http::StatusCode;
use sandboxer_core::page::Page;
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_store::Filter;

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiResult, json};
use crate::openapi::Errors;
use crate::query::Params;

/// List sandboxes, newest first
///
/// Agents see their own. Destroyed ones are left out unless `all` or `state` asks for them.
#[utoipa::path(
    get, path = "/v1/sandboxes", tag = "sandboxes",
    params(
        ("state" = Option<sandboxer_core::State>, Query, description = "Only those in this state"),
        ("label" = Option<Vec<String>>, Query, description = "`key=value`; repeat it for several, all must match"),
        ("all" = Option<bool>, Query, description = "Also those that are destroyed"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("limit" = Option<u32>, Query, description = "Items on a page, 1 to 1000", example = 100)
    ),
    responses((status = 200, description = "A page", body = Page<Sandbox>), Errors)
)]
pub(crate) async fn list_sandboxes(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    let params = Params::parse_with(query.as_deref(), &["state", "all", "cursor", "limit"], &["label"])?;
    let filter = Filter {
        state: params.typed("state")?,
        labels: params.all("label").map(label).collect::<Result<_>>()?,
        all: params.flag("all")?,
        owner_key: None,
    };
    let page = app.engine().list(&caller, filter, params.get("cursor"), params.limit()?).await?;
    json(StatusCode::OK, &page)
}

fn label(text: &str) -> Result<(String, String)> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(|| {
        let shown = sandboxer_core::suggest::printable(text);
        Error::new(ErrorKind::InvalidInput, format!("`{shown}` is not a label"))
            .with_hint("write `label=key=value`")
    })
}
