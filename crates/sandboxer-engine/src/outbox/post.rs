//! One event posted over HTTP, and what the answer means.

use sandboxer_core::event::Event;
use sandboxer_core::{Dur, Error, ErrorKind, Result};
use serde_json::{Value, json};

use super::Undelivered;

/// The whole body; an event with more data than fits says where the data is.
const LONGEST_BODY: usize = 20 * 1024;
/// An answer is read to its end, because one that breaks off took nothing for sure, but not for ever.
const LONGEST_ANSWER: usize = 64 * 1024;
/// As much of an answer as helps a person.
const EXCERPT: usize = 200;

/// An event as it is sent.
pub(super) fn body(event: &Event) -> Result<Vec<u8>> {
    let write = |value: &Value| {
        serde_json::to_vec(value).map_err(|source| {
            Error::new(ErrorKind::Internal, "an event cannot be written").with_source(source)
        })
    };
    let mut value = serde_json::to_value(event).map_err(|source| {
        Error::new(ErrorKind::Internal, "an event cannot be written").with_source(source)
    })?;
    let whole = write(&value)?;
    if whole.len() <= LONGEST_BODY {
        return Ok(whole);
    }
    let bytes = write(&event.data)?.len();
    value["data"] =
        json!({"truncated": true, "bytes": bytes, "link": format!("/v1/sandboxes/{}/events", event.subject)});
    write(&value)
}

/// Sends a request and reads the answer. Only a whole answer with a status of success counts; which one is returned.
pub(super) async fn send(request: reqwest::RequestBuilder) -> Result<u16, Undelivered> {
    let mut answer = request.send().await.map_err(|error| Undelivered::failed(told(error)))?;
    let status = answer.status();
    let retry_after = retry_after(&answer);
    let mut text = Vec::new();
    let end = loop {
        match answer.chunk().await {
            Ok(Some(chunk)) if text.len() + chunk.len() > LONGEST_ANSWER => {
                break Err(format!("it answered {status} with more than {LONGEST_ANSWER} bytes"));
            }
            Ok(Some(chunk)) => text.extend_from_slice(&chunk),
            Ok(None) => break Ok(()),
            Err(error) => break Err(format!("it answered {status} and broke off: {}", told(error))),
        }
    };
    if status.is_success() && end.is_ok() {
        return Ok(status.as_u16());
    }
    let why = match end {
        Err(why) => why,
        Ok(()) if status.is_redirection() => {
            let target =
                answer.headers().get("location").and_then(|value| value.to_str().ok()).unwrap_or("nowhere");
            format!("it answered {status} to {}, and redirects are not followed", excerpt(target.as_bytes()))
        }
        Ok(()) if text.is_empty() => format!("it answered {status}"),
        Ok(()) => format!("it answered {status}: {}", excerpt(&text)),
    };
    Err(Undelivered {
        status: Some(status.as_u16()),
        retry_after,
        gone: status == reqwest::StatusCode::GONE,
        ..Undelivered::failed(why)
    })
}

/// When to come back: seconds or a date.
fn retry_after(answer: &reqwest::Response) -> Option<Dur> {
    let text = answer.headers().get("retry-after")?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Dur::from_millis(seconds.saturating_mul(1_000)));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    let wait = date.as_millisecond() - jiff::Timestamp::now().as_millisecond();
    Some(Dur::from_millis(u64::try_from(wait).unwrap_or(0)))
}

fn excerpt(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * EXCERPT)]).into_owned();
    text.chars().take(EXCERPT).flat_map(char::escape_debug).collect()
}

/// What went wrong with all causes, and without the URL, which may carry a token.
fn told(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut out = error.to_string();
    let mut next = std::error::Error::source(&error);
    while let Some(cause) = next {
        let text = cause.to_string();
        if !out.contains(&text) {
            out = format!("{out}: {text}");
        }
        next = cause.source();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandboxer_core::SandboxId;
    use sandboxer_core::event::NewEvent;

    #[test]
    fn a_body_is_bounded_and_says_where_the_rest_is() {
        let event = |size: usize| {
            NewEvent::fact("sandbox.note", jiff::Timestamp::UNIX_EPOCH, json!({"text": "é".repeat(size)}))
                .into_event("test", SandboxId::generate(), 1)
        };
        let small = event(100);
        assert_eq!(body(&small).unwrap(), serde_json::to_vec(&small).unwrap());
        let large = event(100_000);
        let text = body(&large).unwrap();
        assert!(text.len() < LONGEST_BODY);
        let sent: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(sent["id"], large.id.to_string());
        assert_eq!(sent["data"]["bytes"], 200_011);
        assert_eq!(sent["data"]["link"], format!("/v1/sandboxes/{}/events", large.subject));
    }
}
