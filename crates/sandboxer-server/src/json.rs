//! JSON bodies, strictly: bounded, timed, with the place and a suggestion when something is wrong.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use sandboxer_core::suggest::nearest;
use sandboxer_core::{Error, ErrorKind, Result};
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::error::ApiError;

/// How long a caller may take to send a JSON body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A JSON body that must be there.
pub(crate) struct JsonBody<T>(pub(crate) T);

/// A JSON body whose absence means the default.
pub(crate) struct OptionalJson<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let bytes = read(request, app.limits().json_body).await?;
        Ok(Self(parse(&bytes)?))
    }
}

impl<T: DeserializeOwned + Default> FromRequest<App> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let bytes = read(request, app.limits().json_body).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        Ok(Self(parse(&bytes)?))
    }
}

async fn read(request: Request, limit: usize) -> Result<Bytes, ApiError> {
    let (parts, body) = request.into_parts();
    let bytes = read_bounded(&parts.headers, body, limit).await?;
    if !bytes.is_empty() && !is_json(&parts.headers) {
        return Err(ApiError::edge(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "the body is not marked as JSON",
        )
        .hint("send `Content-Type: application/json`"));
    }
    Ok(bytes)
}

/// A whole body of at most `limit` bytes, within [`BODY_TIMEOUT`].
pub(crate) async fn read_bounded(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes> {
    let too_large = || {
        Error::new(ErrorKind::TooLarge, format!("the body is larger than the {limit} bytes that fit here"))
    };
    if content_length(headers).is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    let collected = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, limit).collect()).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(source)) if source.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(source)) => Err(Error::new(ErrorKind::InvalidInput, format!("the body broke off: {source}"))),
        Err(_) => Err(Error::new(
            ErrorKind::InvalidInput,
            format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs()),
        )),
    }
}

pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
        || (kind.len() > 5 && kind[kind.len() - 5..].eq_ignore_ascii_case("+json"))
}

/// The value, or what is wrong with the text, where, and what was probably meant.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    if bytes.is_empty() {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "the body is empty where a JSON object was expected",
        ));
    }
    // A struct may also be read from a list, by position, which nobody means.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "the body is a JSON list where an object was expected",
        ));
    }
    serde_json::from_slice(bytes).map_err(|source| explain(&source))
}

fn explain(source: &serde_json::Error) -> Error {
    let text = source.to_string();
    let place = format!(" at line {} column {}", source.line(), source.column());
    let message = text.strip_suffix(place.as_str()).unwrap_or(&text);
    let error = Error::new(
        ErrorKind::InvalidInput,
        format!("line {}, column {}: {message}", source.line(), source.column()),
    )
    .with_context("line", source.line().to_string())
    .with_context("column", source.column().to_string());
    match suggestion(message) {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// serde says ``unknown field `x`, expected one of `a`, `b` ``; the nearest of these is what was meant.
fn suggestion(message: &str) -> Option<String> {
    if !message.starts_with("unknown field") && !message.starts_with("unknown variant") {
        return None;
    }
    let mut quoted = message.split('`').skip(1).step_by(2);
    let wrong = quoted.next()?;
    let known: Vec<&str> = quoted.collect();
    Some(match nearest(wrong, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("known are {}", known.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandboxer_core::request::{CreateRequest, ExecRequest};

    #[test]
    fn a_misspelled_key_is_placed_and_mended() {
        let error = parse::<CreateRequest>(b"{\n  \"profil\": \"x\"\n}").err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().starts_with("line 2, column "), "{error}");
        assert_eq!(error.hint(), Some("did you mean `profile`?"));
    }

    #[test]
    fn a_misspelled_value_is_mended() {
        let error = parse::<CreateRequest>(br#"{"scope": "sesion"}"#).err().unwrap();
        assert_eq!(error.hint(), Some("did you mean `session`?"));
    }

    #[test]
    fn what_is_not_json_is_placed() {
        for text in [&b"{"[..], b"[]", b"\xff", b"{\"command\": 7}", b"null", b""] {
            assert_eq!(parse::<ExecRequest>(text).err().unwrap().kind(), ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn json_is_recognised_by_its_type() {
        for (kind, yes) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/cloudevents+json", true),
            ("text/plain", false),
            ("application/x-www-form-urlencoded", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            assert_eq!(is_json(&headers), yes, "{kind}");
        }
    }
}
