//! `Idempotency-Key` for requests other than a create: done once, and the first answer again.

use axum::extract::FromRequestParts;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use sandboxer_core::{ErrorKind, hash};
use sandboxer_engine::Caller;
use sandboxer_store::{Idempotency, Replay};
use serde_json::Value;

use crate::app::App;
use crate::error::{ApiError, ApiResult, json_text, to_json};

const HEADER: &str = "idempotency-key";
/// Marks an answer that was given before.
pub(crate) const REPLAYED: &str = "idempotency-replayed";
const LONGEST: usize = 255;

/// The caller's key, if it sent one.
pub(crate) struct IdempotencyKey(pub(crate) Option<String>);

impl<S: Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let Some(value) = parts.headers.get(HEADER) else { return Ok(Self(None)) };
        let usable =
            (1..=LONGEST).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic);
        match value.to_str() {
            Ok(text) if usable => Ok(Self(Some(text.to_owned()))),
            _ => Err(ApiError::new(
                ErrorKind::InvalidInput,
                format!("an `Idempotency-Key` has 1 to {LONGEST} visible ASCII characters without spaces"),
            )),
        }
    }
}

/// A status and a JSON text, as it is sent and as it is kept.
pub(crate) type Answer = (StatusCode, String);

/// What was found under the key.
pub(crate) enum Turn {
    /// No key: nothing is remembered.
    Free,
    /// The first with this key.
    First(Ticket),
    /// The answer of the first.
    Again(Response),
}

/// The right to do it, and the duty to say how it ended. Dropped without that, the request broke off.
pub(crate) struct Ticket {
    app: App,
    request: Option<Idempotency>,
}

/// Takes the turn of a request. `asked` is everything that makes it this request and no other.
pub(crate) async fn begin(
    app: &App,
    caller: &Caller,
    key: IdempotencyKey,
    operation: &str,
    asked: impl FnOnce() -> Value,
) -> Result<Turn, ApiError> {
    let Some(key) = key.0 else { return Ok(Turn::Free) };
    let request = Idempotency {
        scope: format!("{}/{operation}", caller.key_text().unwrap_or_else(|| "local".into())),
        key,
        body_hash: hash::of_value(&asked()),
    };
    let engine = app.engine();
    match engine.store().idempotency_begin(&request, engine.now()).await? {
        Replay::New => Ok(Turn::First(Ticket { app: app.clone(), request: Some(request) })),
        Replay::Done { status, body } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
            let mut response = json_text(status, body);
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            Ok(Turn::Again(response))
        }
        Replay::InFlight => {
            Err(ApiError::new(ErrorKind::Conflict, "a request with this idempotency key is still under way")
                .hint("wait for it, or send the request again a little later")
                .retry_after(1))
        }
        Replay::Mismatch => Err(ApiError::new(
            ErrorKind::IdempotencyMismatch,
            "this idempotency key was used before with another request",
        )
        .hint("use a new key for a new request")),
    }
}

impl Ticket {
    /// Keeps the answer for whoever asks again.
    pub(crate) async fn keep(mut self, (status, body): &Answer) -> Result<(), ApiError> {
        self.settle(Some((status.as_u16(), body.clone()))).await
    }

    /// Nothing was done: the same key may try again.
    pub(crate) async fn forget(mut self) -> Result<(), ApiError> {
        self.settle(None).await
    }

    async fn settle(&mut self, answer: Option<(u16, String)>) -> Result<(), ApiError> {
        if let Some(request) = &self.request {
            self.app.engine().store().idempotency_finish(request, answer).await?;
        }
        self.request = None;
        Ok(())
    }
}

impl Drop for Ticket {
    /// The caller went away in the middle. What was done is not known, so it is not done again under this key.
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        let app = self.app.clone();
        let error =
            ApiError::new(ErrorKind::Conflict, "the first request with this idempotency key broke off")
                .hint("look at what it did, then use a new key");
        let kept = to_json(&error.envelope("")).map(|body| (error.status().as_u16(), body));
        app.clone().tasks().spawn(async move {
            let Ok(kept) = kept else { return };
            if let Err(error) = app.engine().store().idempotency_finish(&request, Some(kept)).await {
                tracing::warn!(error = ?error, "a broken-off request could not be recorded");
            }
        });
    }
}

/// Does the work once under the key, or gives the first answer again.
pub(crate) async fn once<W>(
    app: &App,
    caller: &Caller,
    key: IdempotencyKey,
    operation: &str,
    asked: impl FnOnce() -> Value,
    work: W,
) -> ApiResult
where
    W: Future<Output = Result<Answer, ApiError>>,
{
    let ticket = match begin(app, caller, key, operation, asked).await? {
        Turn::Again(response) => return Ok(response),
        Turn::First(ticket) => Some(ticket),
        Turn::Free => None,
    };
    let outcome = work.await;
    if let Some(ticket) = ticket {
        match &outcome {
            Ok(answer) => ticket.keep(answer).await?,
            Err(error) if error.had_effect => {
                ticket.keep(&(error.status(), to_json(&error.envelope(""))?)).await?;
            }
            Err(_) => ticket.forget().await?,
        }
    }
    outcome.map(|(status, body)| json_text(status, body))
}
