//! What could not be told to others, and telling it again.

use axum::extract::{RawQuery, State};
use http::StatusCode;
use sandboxer_core::page::Page;
use sandboxer_engine::ReplayRequest;
use sandboxer_engine::caller::Action;
use sandboxer_store::{DeadLetter, DeadLetterFilter, SinkStats};
use serde::Serialize;

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiResult, json};
use crate::json::JsonBody;
use crate::openapi::Errors;
use crate::path::NamePath;
use crate::query::Params;

/// List deliveries that were given up
///
/// For operators of type `adm`. Newest first.
#[utoipa::path(
    get, path = "/v1/events/dead", tag = "events",
    params(
        ("sink" = Option<String>, Query, description = "`state-hub`, `fin-hub` or a webhook's id"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("limit" = Option<u32>, Query, description = "Items on a page, 1 to 1000", example = 100)
    ),
    responses((status = 200, description = "A page", body = Page<DeadLetter>), Errors)
)]
pub(crate) async fn dead_letters(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::ManageMoney)?;
    let params = Params::parse(query.as_deref(), &["sink", "cursor", "limit"])?;
    let filter = DeadLetterFilter { sink: params.get("sink").map(str::to_owned) };
    let page = app.engine().dead_letters(&caller, &filter, params.get("cursor"), params.limit()?).await?;
    json(StatusCode::OK, &page)
}

/// List the sinks that events are queued for
///
/// For operators of type `adm`. Hubs that a process of this store was told of, and webhooks, with what waits for each and
/// what was given up.
#[utoipa::path(
    get, path = "/v1/events/sinks", tag = "events",
    responses((status = 200, description = "All of them", body = Page<SinkStats>), Errors)
)]
pub(crate) async fn sinks(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::ManageMoney)?;
    Params::parse(query.as_deref(), &[])?;
    let items = app.engine().sinks(&caller).await?;
    json(StatusCode::OK, &Page { items, next_cursor: None })
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Forgotten {
    /// Deliveries that were dropped.
    dropped: u64,
}

/// Forget a hub
///
/// For operators of type `adm`. Nothing more is queued for it, and what waits is dropped. Refused while the server itself
/// has its URL; webhooks are removed with `DELETE /v1/webhooks/{id}`.
#[utoipa::path(
    delete, path = "/v1/events/sinks/{name}", tag = "events",
    params(("name" = String, Path, description = "`state-hub` or `fin-hub`")),
    responses((status = 200, description = "How many deliveries were dropped", body = Forgotten), Errors)
)]
pub(crate) async fn forget_sink(
    State(app): State<App>,
    Auth(caller): Auth,
    NamePath(name): NamePath,
    RawQuery(query): RawQuery,
) -> ApiResult {
    caller.require(Action::ManageMoney)?;
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &Forgotten { dropped: app.engine().forget_sink(&caller, &name).await? })
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Replayed {
    /// Deliveries that are queued again.
    replayed: u64,
}

/// Deliver events again
///
/// For operators of type `adm`. One dead letter by `delivery_id`, one event by `event_id` with or without a `sink`, or
/// all events of a `sink` `since` a moment. They keep their ids. What is queued already is not queued twice, so a
/// repeat does no harm.
#[utoipa::path(
    post, path = "/v1/events/replay", tag = "events",
    request_body(content = ReplayRequest, example = json!({ "sink": "fin-hub", "since": "2026-11-15T00:00:00Z" })),
    responses((status = 200, description = "How many", body = Replayed), Errors)
)]
pub(crate) async fn replay_events(
    State(app): State<App>,
    Auth(caller): Auth,
    RawQuery(query): RawQuery,
    JsonBody(request): JsonBody<ReplayRequest>,
) -> ApiResult {
    caller.require(Action::ManageMoney)?;
    Params::parse(query.as_deref(), &[])?;
    json(StatusCode::OK, &Replayed { replayed: app.engine().replay_events(&caller, &request).await? })
}
