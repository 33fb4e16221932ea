//! A hub of the house: each event is posted to its URL as one CloudEvent in JSON.

use std::time::Duration;

use sandboxer_core::event::Event;
use sandboxer_core::{Error, ErrorKind, Result};

use super::{Undelivered, post};
use crate::http;

/// A hub that hangs holds up one delivery for this long, and nothing else.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Hub {
    /// As a person would say it.
    title: &'static str,
    url: reqwest::Url,
    client: reqwest::Client,
}

/// A hub is named by whoever runs the server, so that it may be anywhere. Cheap: for everybody who only queues, too.
pub(super) fn check_url(title: &str, variable: &str, url: &str) -> Result<reqwest::Url> {
    let invalid = |why: String| {
        Error::new(ErrorKind::InvalidInput, format!("the {title}'s URL cannot be used: {why}"))
            .with_hint(format!("{variable} is an http:// or https:// URL that takes a POST"))
    };
    let url: reqwest::Url = url.parse().map_err(|error| invalid(format!("{error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid(format!("the scheme `{}` is not HTTP", url.scheme())));
    }
    Ok(url)
}

impl Hub {
    pub(super) fn new(title: &'static str, variable: &str, url: &str) -> Result<Self> {
        let url = check_url(title, variable, url)?;
        let client = http::build(http::client_builder().timeout(TIMEOUT))?;
        Ok(Self { title, url, client })
    }

    pub(super) async fn deliver(&self, event: &Event) -> Result<(), Undelivered> {
        let request = self
            .client
            .post(self.url.clone())
            .header("content-type", "application/cloudevents+json")
            .header("idempotency-key", event.id.to_string())
            .body(post::body(event)?);
        post::send(request).await.map(drop).map_err(|undelivered| Undelivered {
            error: Error::new(ErrorKind::BackendFailed, format!("the {} did not take the event", self.title))
                .with_source(undelivered.error),
            ..undelivered
        })
    }
}
