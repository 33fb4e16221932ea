//! Errors of a server as errors of ours: the same kind, words, hint and exit code.

use reqwest::Response;
use sandboxer_core::{Error, ErrorKind};
use serde::Deserialize;

/// What to do about a server that is not there.
pub(super) const AWAY: &str =
    "start it with `sandboxer serve`, or leave out --server and SANDBOXER_SERVER to use the local store";

#[derive(Deserialize)]
pub(super) struct Envelope {
    pub(super) error: ErrorBody,
}

#[derive(Deserialize)]
pub(super) struct ErrorBody {
    code: String,
    message: String,
    #[serde(default)]
    hint: Option<String>,
    #[serde(default)]
    details: std::collections::BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    request_id: Option<String>,
}

impl From<ErrorBody> for Error {
    fn from(body: ErrorBody) -> Self {
        // Codes that only HTTP knows are mistakes of a request that we put together.
        let kind = ErrorKind::from_code(&body.code).unwrap_or(ErrorKind::Internal);
        let error = Error::new(kind, body.message).with_context("code", body.code);
        // Only what a command goes on with.
        let error = match body.details.get("fingerprints").and_then(|text| text.as_str()) {
            Some(fingerprints) => error.with_context("fingerprints", fingerprints),
            None => error,
        };
        let error = match body.request_id {
            Some(id) => error.with_context("request_id", id),
            None => error,
        };
        match body.hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

/// An answer that is not a success.
pub(super) async fn of_response(response: Response) -> Error {
    let status = response.status().as_u16();
    let body = response.bytes().await.unwrap_or_default();
    of_body(status, &body)
}

pub(super) fn of_body(status: u16, body: &[u8]) -> Error {
    match serde_json::from_slice::<Envelope>(body) {
        Ok(envelope) => envelope.error.into(),
        Err(_) => {
            let kind = match status {
                401 => ErrorKind::Unauthenticated,
                403 => ErrorKind::Denied,
                404 => ErrorKind::NotFound,
                413 => ErrorKind::TooLarge,
                429 => ErrorKind::RateLimited,
                504 => ErrorKind::Timeout,
                _ => ErrorKind::BackendFailed,
            };
            Error::new(kind, format!("the server answered {status} without saying why"))
                .with_hint("is it a sandboxer server of the same version?")
        }
    }
}

/// No answer at all, or one that broke off.
pub(super) fn unreachable(source: &reqwest::Error) -> Error {
    let message = if source.is_connect() {
        "the server cannot be reached"
    } else {
        "the connection to the server broke off"
    };
    let error = Error::new(ErrorKind::BackendFailed, message);
    // The innermost cause says it best; the layers above repeat it.
    let mut innermost: &dyn std::error::Error = source;
    while let Some(next) = innermost.source() {
        innermost = next;
    }
    let error = error.with_source(std::io::Error::other(innermost.to_string()));
    if source.is_connect() {
        return error.with_hint(AWAY);
    }
    error
}
