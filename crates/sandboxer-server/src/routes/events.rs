//! What happened: pages, or a stream that goes on from where a reader left.

use std::collections::VecDeque;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use sandboxer_core::event::Event;
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::{Error, ErrorKind, EventId, Result, SandboxId};
use sandboxer_engine::Caller;
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::auth::Auth;
use crate::error::{ApiError, ApiResult, json};
use crate::openapi::Errors;
use crate::path::SandboxPath;
use crate::query::Params;
use crate::stream::Form;

/// A comment this often tells proxies and readers that the stream lives.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The value of `after` that skips everything so far.
const LATEST: &str = "latest";

/// Read the events of all sandboxes
///
/// Oldest first; agents see those of their own. With `Accept: text/event-stream` it goes on with what happens, and
/// `Last-Event-ID` resumes it.
#[utoipa::path(
    get, path = "/v1/events", tag = "events",
    params(
        ("after" = Option<String>, Query, description = "Only those after this event id; `latest` skips all so far"),
        ("limit" = Option<u32>, Query, description = "Items on a page, 1 to 1000", example = 100),
        ("Last-Event-ID" = Option<String>, Header, description = "The same as `after`, and stronger")
    ),
    responses(
        (status = 200, description = "`next_cursor` is the `after` of the next page", content(
            (Page<Event> = "application/json"),
            (Event = "text/event-stream")
        )),
        Errors
    )
)]
pub(crate) async fn all_events(
    State(app): State<App>,
    Auth(caller): Auth,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> ApiResult {
    answer(app, caller, None, &headers, query.as_deref()).await
}

/// Read the events of a sandbox
///
/// Like `/v1/events`, for one sandbox.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/events", tag = "events",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("after" = Option<String>, Query, description = "Only those after this event id; `latest` skips all so far"),
        ("limit" = Option<u32>, Query, description = "Items on a page, 1 to 1000", example = 100),
        ("Last-Event-ID" = Option<String>, Header, description = "The same as `after`, and stronger")
    ),
    responses(
        (status = 200, description = "`next_cursor` is the `after` of the next page", content(
            (Page<Event> = "application/json"),
            (Event = "text/event-stream")
        )),
        Errors
    )
)]
pub(crate) async fn sandbox_events(
    State(app): State<App>,
    Auth(caller): Auth,
    SandboxPath(id): SandboxPath,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> ApiResult {
    answer(app, caller, Some(id), &headers, query.as_deref()).await
}

async fn answer(
    app: App,
    caller: Caller,
    subject: Option<SandboxId>,
    headers: &HeaderMap,
    query: Option<&str>,
) -> ApiResult {
    let params = Params::parse(query, &["after", "limit"])?;
    let (after, limit) = (position(&app, &params, headers).await?, params.limit()?);
    // Also for a stream: a sandbox that is not there is said with its status.
    let first = app.engine().events(&caller, subject, after, limit).await?;
    if Form::accepted(headers) == Some(Form::Sse) {
        let slot = app.event_streams().clone().try_acquire_owned().map_err(|_| {
            ApiError::new(ErrorKind::RateLimited, "too many event streams are open").retry_after(5)
        })?;
        let mut following =
            Following { app, caller, subject, after, limit, ready: VecDeque::new(), _slot: slot };
        following.take(first);
        return Ok(Form::Sse.response(futures::stream::unfold(following, |mut following| async move {
            let record = following.next().await?;
            Some((record, following))
        })));
    }
    let full = first.len() >= limit.get() as usize;
    let items: Vec<Event> = first.into_iter().map(|placed| placed.event).collect();
    let next_cursor = items.last().filter(|_| full).map(|last| last.id.to_string());
    json(StatusCode::OK, &Page { items, next_cursor })
}

async fn position(app: &App, params: &Params<'_>, headers: &HeaderMap) -> Result<i64> {
    let resumed = match headers.get("last-event-id").filter(|value| !value.is_empty()) {
        None => None,
        Some(value) => Some(
            value
                .to_str()
                .map_err(|_| Error::new(ErrorKind::InvalidInput, "`Last-Event-ID` is not an event id"))?,
        ),
    };
    match resumed.or(params.get("after")) {
        Some(LATEST) => app.engine().last_position().await,
        Some(id) => app.engine().position_after(Some(id.parse::<EventId>()?)).await,
        None => Ok(0),
    }
}

/// A reader that follows. It holds one page at the most, however slow it is.
struct Following {
    app: App,
    caller: Caller,
    subject: Option<SandboxId>,
    after: i64,
    limit: Limit,
    ready: VecDeque<Bytes>,
    _slot: OwnedSemaphorePermit,
}

impl Following {
    fn take(&mut self, events: Vec<sandboxer_store::PlacedEvent>) {
        for placed in events {
            self.after = placed.position;
            let id = placed.event.id.to_string();
            self.ready.push_back(Form::Sse.record(&placed.event.kind, Some(&id), &placed.event));
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        if let Some(record) = self.ready.pop_front() {
            return Some(record);
        }
        let draining = self.app.draining().clone();
        let more =
            self.app.engine().next_events(&self.caller, self.subject, self.after, self.limit, HEARTBEAT);
        let events = tokio::select! {
            () = draining.cancelled() => return None,
            events = more => events,
        };
        match events {
            Ok(events) => {
                self.take(events);
                Some(self.ready.pop_front().unwrap_or_else(|| Bytes::from_static(b": still here\n\n")))
            }
            // The reader comes back with its last id and hears the reason with a status.
            Err(error) => {
                tracing::warn!(error = ?error, "an event stream broke off");
                None
            }
        }
    }
}
