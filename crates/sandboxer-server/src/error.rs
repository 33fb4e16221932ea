//! Errors as callers see them: one envelope, a stable code, the request's id.
//!
//! A handler returns [`ApiError`]; it travels in the response's extensions until the edge, which knows the request id,
//! writes it out.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use sandboxer_core::{Error, ErrorKind, Result as CoreResult};
use serde::Serialize;
use serde_json::Value;

pub(crate) type ApiResult<T = Response> = Result<T, ApiError>;

/// Refusals that only HTTP knows: status, code, what it means.
pub const EDGE_CODES: &[(u16, &str, &str)] = &[
    (405, "method_not_allowed", "The path is there and has no such method; `Allow` lists those it has."),
    (415, "unsupported_media_type", "A body that is not `application/json` where one was expected."),
    (426, "upgrade_required", "A plain request to the WebSocket."),
];

/// How long to wait before a refused request is worth sending again, where nothing better is known.
const DEFAULT_RETRY_AFTER: u64 = 1;

#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    error: Error,
    /// Instead of the kind's own, for what only HTTP knows.
    edge: Option<(StatusCode, &'static str)>,
    retry_after: Option<u64>,
    /// Something had been done already when it went wrong.
    pub(crate) had_effect: bool,
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        // A backend's own word, or the end of the rest that it is given.
        let retry_after = error.retry_after().map(|span| span.as_millis().div_ceil(1_000).max(1));
        Self { error, edge: None, retry_after, had_effect: false }
    }
}

impl ApiError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error::new(kind, message).into()
    }

    /// One of [`EDGE_CODES`].
    pub(crate) fn edge(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let edge = Some((status, code));
        Self { edge, ..Self::new(ErrorKind::InvalidInput, message) }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.error = self.error.with_hint(hint);
        self
    }

    #[must_use]
    pub(crate) fn context(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.error = self.error.with_context(key, value);
        self
    }

    #[must_use]
    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds.max(1));
        self
    }

    #[must_use]
    pub(crate) fn after_effect(mut self) -> Self {
        self.had_effect = true;
        self
    }

    pub(crate) fn error(&self) -> &Error {
        &self.error
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self.edge {
            Some((status, _)) => status,
            None => StatusCode::from_u16(self.error.kind().http_status())
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }

    fn code(&self) -> &'static str {
        self.edge.map_or_else(|| self.error.kind().code(), |(_, code)| code)
    }

    pub(crate) fn envelope(&self, request_id: &str) -> Envelope {
        Envelope {
            error: ErrorBody {
                code: self.code().to_owned(),
                message: self.error.chain().join(": "),
                hint: self.error.hint().map(str::to_owned),
                details: self.error.context().iter().map(|(key, value)| (*key, detail(key, value))).collect(),
                request_id: request_id.to_owned(),
            },
        }
    }

    /// Writes the envelope into the response that carried the error here; its other headers stay.
    pub(crate) fn write_into(&self, response: &mut Response, request_id: &str) {
        let body = serde_json::to_vec(&self.envelope(request_id)).unwrap_or_default();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        let status = self.status();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"sandboxer\""));
        }
        let retry =
            self.retry_after.or((status == StatusCode::TOO_MANY_REQUESTS).then_some(DEFAULT_RETRY_AFTER));
        if let Some(seconds) = retry {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        *response.status_mut() = status;
        *response.body_mut() = Body::from(body);
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// What is a document inside is one outside.
fn detail(key: &str, text: &str) -> Value {
    let document = matches!(key, "offers" | "attempts").then(|| serde_json::from_str(text).ok()).flatten();
    document.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The one form of every error.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Envelope {
    pub error: ErrorBody,
}

#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[schema(example = json!({
    "code": "profile_not_found",
    "message": "there is no profile `profile.agnet-dev`",
    "hint": "did you mean `profile.agent-dev`?",
    "details": {},
    "request_id": "01jx0000000000000000000000"
}))]
pub struct ErrorBody {
    /// Stable; programs decide by it.
    pub code: String,
    /// For people; the causes follow after colons.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Words, and with `no_backend` the `offers` as `POST /v1/route` gives them.
    #[schema(value_type = Object)]
    pub details: BTreeMap<&'static str, Value>,
    /// The `X-Request-Id` of the answer, for the logs.
    pub request_id: String,
}

/// The JSON text of a value of ours.
pub(crate) fn to_json(value: &impl Serialize) -> CoreResult<String> {
    serde_json::to_string(value).map_err(|source| {
        Error::new(ErrorKind::Internal, "an answer cannot be written as JSON").with_source(source)
    })
}

/// An answer whose JSON is already text.
pub(crate) fn json_text(status: StatusCode, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> ApiResult {
    Ok(json_text(status, to_json(value)?))
}

#[cfg(test)]
mod tests {
    use sandboxer_core::Dur;

    use super::*;

    fn retry_after(error: impl Into<ApiError>) -> Option<String> {
        let mut response = Response::default();
        error.into().write_into(&mut response, "r");
        response.headers().get(header::RETRY_AFTER).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn what_a_backend_asks_for_is_passed_on() {
        let busy = || Error::new(ErrorKind::RateLimited, "busy");
        assert_eq!(retry_after(busy()).as_deref(), Some("1"));
        assert_eq!(retry_after(busy().with_retry_after(Dur::from_secs(7))).as_deref(), Some("7"));
        assert_eq!(retry_after(busy().with_retry_after(Dur::from_millis(6_001))).as_deref(), Some("7"));
        let none = Error::new(ErrorKind::NoBackend, "nobody");
        assert_eq!(retry_after(none.clone()), None);
        assert_eq!(retry_after(none.with_retry_after(Dur::from_secs(30))).as_deref(), Some("30"));
        let ours = ApiError::from(busy().with_retry_after(Dur::from_secs(7))).retry_after(3);
        assert_eq!(retry_after(ours).as_deref(), Some("3"));
    }
}
