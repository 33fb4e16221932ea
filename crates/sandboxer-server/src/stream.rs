//! Long answers: newline-delimited JSON or server-sent events, made only as fast as they are read.

use std::convert::Infallible;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::Stream;
use http::{HeaderMap, HeaderValue, header};
use serde::Serialize;

/// The form that a caller accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Ndjson,
    Sse,
}

impl Form {
    /// The first streaming form that `Accept` names, if any.
    pub(crate) fn accepted(headers: &HeaderMap) -> Option<Self> {
        let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        accepted.flat_map(|list| list.split(',')).find_map(|item| {
            let kind = item.split(';').next().unwrap_or_default().trim();
            match kind {
                "application/x-ndjson" | "application/ndjson" => Some(Self::Ndjson),
                "text/event-stream" => Some(Self::Sse),
                _ => None,
            }
        })
    }

    /// One record: a line, or an event of this name.
    pub(crate) fn record(self, name: &str, id: Option<&str>, value: &impl Serialize) -> Bytes {
        let mut out = Vec::with_capacity(128);
        if self == Self::Sse {
            if let Some(id) = id {
                out.extend_from_slice(b"id: ");
                out.extend_from_slice(id.as_bytes());
                out.push(b'\n');
            }
            out.extend_from_slice(b"event: ");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\ndata: ");
        }
        // JSON has no raw line ends, so a record is one line in both forms.
        if let Err(error) = serde_json::to_writer(&mut out, value) {
            tracing::error!(%error, "a record cannot be written as JSON");
        }
        out.extend_from_slice(if self == Self::Sse { b"\n\n" } else { b"\n" });
        out.into()
    }

    pub(crate) fn response<S>(self, records: S) -> Response
    where
        S: Stream<Item = Bytes> + Send + 'static,
    {
        use futures::StreamExt;
        let kind = match self {
            Self::Ndjson => "application/x-ndjson",
            Self::Sse => "text/event-stream",
        };
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
            // Proxies that collect before they pass on would defeat the purpose.
            (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
        ];
        (headers, Body::from_stream(records.map(Ok::<_, Infallible>))).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_what_is_accepted_first() {
        let form = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            Form::accepted(&headers)
        };
        assert_eq!(form("*/*"), None);
        assert_eq!(form("application/json"), None);
        assert_eq!(form("text/event-stream;q=0.9, application/x-ndjson"), Some(Form::Sse));
        assert_eq!(form("application/json, application/x-ndjson"), Some(Form::Ndjson));
    }

    #[test]
    fn records_are_one_line() {
        let value = serde_json::json!({ "data": "a\nb" });
        assert_eq!(Form::Ndjson.record("stdout", None, &value), "{\"data\":\"a\\nb\"}\n");
        assert_eq!(
            Form::Sse.record("x", Some("evt_1"), &value),
            "id: evt_1\nevent: x\ndata: {\"data\":\"a\\nb\"}\n\n"
        );
    }
}
