//! One webhook endpoint as a sink: signed, guarded, without redirects and proxies.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::event::Event;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_store::{Outlet, WebhookRecord};

use super::guard::{Guarded, PrivateTargets, is_plain};
use super::schedule::{self, Schedule};
use super::{Sink, Undelivered, post, sign};
use crate::vault::Secret;
use crate::{Engine, http};

/// An endpoint that hangs holds up the deliveries of one round for this long.
const TIMEOUT: Duration = Duration::from_secs(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What all webhooks of an engine share.
#[derive(Default)]
pub(crate) struct Post {
    targets: std::sync::OnceLock<PrivateTargets>,
    /// Made when it is first needed, since that takes its time.
    client: std::sync::OnceLock<reqwest::Client>,
    /// The same for connections without TLS, which may go to fewer places.
    plain: std::sync::OnceLock<reqwest::Client>,
}

impl Post {
    pub(super) fn targets(&self) -> PrivateTargets {
        self.targets.get().cloned().unwrap_or_default()
    }

    fn client(&self, plain: bool) -> Result<reqwest::Client> {
        let place = if plain { &self.plain } else { &self.client };
        if let Some(client) = place.get() {
            return Ok(client.clone());
        }
        let builder = http::client_builder()
            .no_proxy()
            .dns_resolver(Arc::new(Guarded { targets: self.targets(), plain }))
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT);
        let client = http::build(builder)?;
        Ok(place.get_or_init(|| client).clone())
    }
}

impl Engine {
    /// Names the private addresses that webhooks may reach; without it there are none. Before the first delivery.
    pub fn allow_private_webhooks(&self, targets: PrivateTargets) {
        let _ = self.inner.post.targets.set(targets);
    }
}

pub(super) struct Webhook {
    engine: Engine,
    name: String,
    record: WebhookRecord,
}

impl Webhook {
    pub(super) fn new(engine: &Engine, record: WebhookRecord) -> Self {
        Self { engine: engine.clone(), name: record.id.to_string(), record }
    }

    /// Posts a body under an id that stays the same however often it is sent. Returns the status of the answer.
    pub(super) async fn send(&self, id: &str, body: Vec<u8>) -> Result<u16, Undelivered> {
        // Again at every delivery: what is allowed may have changed since the endpoint was made.
        let url = self.engine.inner.post.targets().check_url(&self.record.url)?;
        let now = self.engine.now();
        let signatures = sign::signatures(&self.secrets(now)?, id, now.as_second(), &body)?;
        let request = self
            .engine
            .inner
            .post
            .client(is_plain(&url))?
            .post(url)
            .header("content-type", "application/cloudevents+json")
            .header("webhook-id", id)
            .header("webhook-timestamp", now.as_second().to_string())
            .header("webhook-signature", signatures)
            .body(body);
        post::send(request).await
    }

    /// Every secret that is valid and there, newest first. An older one that was lost stops nobody; without the newest
    /// nothing is sent, because whoever was given it could not verify it.
    fn secrets(&self, now: Timestamp) -> Result<Vec<Secret>> {
        let vault = self.engine.vault()?;
        let valid = self.record.secrets.iter().filter(|secret| secret.expires_at.is_none_or(|end| end > now));
        let mut found = Vec::new();
        for (age, secret) in valid.enumerate() {
            match vault.get(&secret.name)? {
                Some(secret) => found.push(secret),
                None if age > 0 => {
                    tracing::warn!(
                        webhook = self.name,
                        "an older secret of a webhook is gone and signs nothing"
                    );
                }
                None => {
                    let message = format!(
                        "the secret of webhook {0} is gone; `webhooks rotate {0}` makes a new one",
                        self.name
                    );
                    return Err(Error::new(ErrorKind::NotFound, message));
                }
            }
        }
        Ok(found)
    }
}

#[async_trait]
impl Sink for Webhook {
    fn name(&self) -> &str {
        &self.name
    }

    fn outlet(&self) -> Outlet {
        self.record.outlet()
    }

    fn schedule(&self) -> Schedule {
        schedule::WEBHOOK
    }

    async fn deliver(&self, event: &Event) -> Result<(), Undelivered> {
        self.send(&event.id.to_string(), post::body(event)?).await.map(drop)
    }
}
