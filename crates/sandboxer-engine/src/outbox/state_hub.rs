//! The State Hub: each event is posted to its URL as one CloudEvent in JSON.

use std::time::Duration;

use async_trait::async_trait;
use sandboxer_core::event::Event;
use sandboxer_core::{Error, ErrorKind, Result};

use super::Sink;
use crate::http;

/// The name under which deliveries to the hub are queued.
pub const STATE_HUB_SINK: &str = "state-hub";
/// A hub that hangs holds up one delivery for this long, and nothing else.
const TIMEOUT: Duration = Duration::from_secs(10);

pub struct StateHub {
    url: reqwest::Url,
    client: reqwest::Client,
}

impl StateHub {
    pub fn new(url: &str) -> Result<Self> {
        let invalid = |why: String| {
            Error::new(ErrorKind::InvalidInput, format!("the State Hub's URL cannot be used: {why}"))
                .with_hint("SANDBOXER_STATE_HUB_URL is an http:// or https:// URL that takes a POST")
        };
        let url: reqwest::Url = url.parse().map_err(|error| invalid(format!("{error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(invalid(format!("the scheme `{}` is not HTTP", url.scheme())));
        }
        let client = http::build(http::client_builder().timeout(TIMEOUT))?;
        Ok(Self { url, client })
    }
}

#[async_trait]
impl Sink for StateHub {
    fn name(&self) -> &str {
        STATE_HUB_SINK
    }

    async fn deliver(&self, event: &Event) -> Result<()> {
        let failed = |why: String| {
            Error::new(ErrorKind::BackendFailed, format!("the State Hub did not take the event: {why}"))
        };
        let body = serde_json::to_vec(event).map_err(|error| failed(error.to_string()))?;
        let answer = self
            .client
            .post(self.url.clone())
            .header("content-type", "application/cloudevents+json")
            .header("idempotency-key", event.id.to_string())
            .body(body)
            .send()
            .await
            .map_err(|error| failed(error.without_url().to_string()))?;
        if answer.status().is_success() {
            Ok(())
        } else {
            Err(failed(format!("it answered {}", answer.status())))
        }
    }
}
