//! Webhook endpoints: made, listed, rotated, tried out and removed while everything runs.

use std::collections::HashMap;
use std::time::Instant;

use jiff::Timestamp;
use sandboxer_core::page::Limit;
use sandboxer_core::{Dur, Error, ErrorKind, EventId, Result, WebhookId};
use sandboxer_store::{DeadLetterFilter, Disabled, EventPattern, SecretRef, SinkStats, WebhookRecord};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::webhook::Webhook;
use super::{kinds, sign};
use crate::caller::Action;
use crate::vault::Secret;
use crate::{Caller, Engine};

/// Each event is looked at once per endpoint.
const MOST_WEBHOOKS: u32 = 64;
const MOST_PATTERNS: usize = 32;
const LONGEST_DESCRIPTION: usize = 256;
/// How long a secret that was replaced goes on signing, unless somebody says otherwise.
const OVERLAP: Dur = Dur::from_secs(86_400);
const LONGEST_OVERLAP: Dur = Dur::from_secs(30 * 86_400);
/// Each one that is valid adds a signature to every request.
const MOST_SECRETS: usize = 4;

fn everything() -> Vec<EventPattern> {
    vec![EventPattern::all()]
}

/// An endpoint that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewWebhook {
    /// Where events are posted to; `https`, and not to a private address unless the server allows it.
    pub url: String,
    /// Which events: `*`, `sandbox.*`, `sandbox.ready`, `meter.*` …
    #[serde(default = "everything")]
    pub events: Vec<EventPattern>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// An endpoint as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WebhookView {
    pub webhook_id: WebhookId,
    pub url: String,
    pub events: Vec<EventPattern>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub enabled: bool,
    /// Since when and why it gets nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Disabled>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// The secrets that sign, newest first, without what they are.
    pub secrets: Vec<SecretView>,
    /// Deliveries that wait.
    pub pending: u64,
    /// Deliveries that were given up.
    pub dead: u64,
    /// What the last try that failed was answered; absent when nothing waits or was given up, and in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When the next try is due; absent when nothing waits, and in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub next_try_at: Option<Timestamp>,
}

/// How long a secret signs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SecretView {
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
}

/// An endpoint with its newest secret, which is shown this once.
#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NewWebhookView {
    #[serde(flatten)]
    pub webhook: WebhookView,
    /// `whsec_…`, for the receiver to verify signatures with.
    pub secret: String,
}

/// What an endpoint said to a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WebhookAnswer {
    pub delivered: bool,
    /// Of the answer, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub took_ms: u64,
    /// The `webhook-id` of the test event.
    pub event_id: EventId,
}

impl Engine {
    /// Adds an endpoint. The secret is shown this once.
    pub async fn webhook_create(&self, caller: &Caller, new: NewWebhook) -> Result<NewWebhookView> {
        caller.require(Action::ManageMoney)?;
        let targets = self.inner.post.targets();
        let url = targets.check_url(&new.url)?;
        check(&new)?;
        targets.check_name(&url).await?;
        let id = WebhookId::generate();
        let (secret, kept) = self.new_secret(id)?;
        let record = WebhookRecord {
            id,
            url: url.to_string(),
            patterns: new.events,
            description: new.description,
            created_at: self.now(),
            secrets: vec![kept],
            disabled: None,
            version: 1,
        };
        if let Err(error) = self.inner.store.webhook_insert(&record, MOST_WEBHOOKS).await {
            self.forget_secrets(&record.secrets);
            return Err(error);
        }
        Ok(NewWebhookView { webhook: self.view(record).await?, secret: secret.expose().to_owned() })
    }

    /// Newest first.
    pub async fn webhook_list(&self, caller: &Caller) -> Result<Vec<WebhookView>> {
        caller.require(Action::ManageMoney)?;
        let stats = self.stats_by_sink().await?;
        let records = self.inner.store.webhook_list().await?;
        Ok(records.into_iter().map(|record| view(record, &stats)).collect())
    }

    pub async fn webhook_get(&self, caller: &Caller, id: WebhookId) -> Result<WebhookView> {
        caller.require(Action::ManageMoney)?;
        let record = self.webhook(id).await?;
        self.view(record).await
    }

    /// Forgets an endpoint with its queue, its dead letters and its secrets.
    pub async fn webhook_remove(&self, caller: &Caller, id: WebhookId) -> Result<WebhookView> {
        caller.require(Action::ManageMoney)?;
        let stats = self.stats_by_sink().await?;
        let record = self.inner.store.webhook_remove(id).await?;
        self.forget_secrets(&record.secrets);
        Ok(view(record, &stats))
    }

    /// Makes a new secret. The old one signs as well until the overlap is over, a day unless it is given.
    pub async fn webhook_rotate(
        &self,
        caller: &Caller,
        id: WebhookId,
        overlap: Option<Dur>,
    ) -> Result<NewWebhookView> {
        caller.require(Action::ManageMoney)?;
        let overlap = overlap.unwrap_or(OVERLAP);
        if overlap > LONGEST_OVERLAP {
            return Err(Error::new(ErrorKind::InvalidInput, format!("an overlap of {overlap} is too long"))
                .with_hint(format!("two secrets are valid together for up to {LONGEST_OVERLAP}")));
        }
        let mut record = self.webhook(id).await?;
        let now = self.now();
        let end = overlap.after(now);
        for old in &mut record.secrets {
            // One that was replaced before keeps the time that it was promised, unless none is wanted at all.
            let promised = old.expires_at.filter(|_| overlap > Dur::default());
            old.expires_at = Some(promised.unwrap_or(end));
        }
        let (keep, gone): (Vec<_>, Vec<_>) =
            record.secrets.into_iter().partition(|old| old.expires_at.is_none_or(|end| end > now));
        record.secrets = keep;
        if record.secrets.len() >= MOST_SECRETS {
            let message = format!("{} secrets of webhook {id} are still valid", record.secrets.len());
            return Err(Error::new(ErrorKind::Conflict, message).with_hint(format!(
                "{MOST_SECRETS} may be; wait until one is over, or end all old ones now with an overlap of 0s"
            )));
        }
        let (secret, kept) = self.new_secret(id)?;
        record.secrets.insert(0, kept);
        match self.inner.store.webhook_update(&record).await {
            Ok(record) => {
                self.forget_secrets(&gone);
                Ok(NewWebhookView { webhook: self.view(record).await?, secret: secret.expose().to_owned() })
            }
            Err(error) => {
                self.forget_secrets(&record.secrets[..1]);
                Err(error)
            }
        }
    }

    /// Turns an endpoint on, or off with a reason. What waits for one that is turned on is due at once, also when it was
    /// on before; what waits for one that is turned off becomes dead letters.
    pub async fn webhook_enable(&self, caller: &Caller, id: WebhookId, enabled: bool) -> Result<WebhookView> {
        caller.require(Action::ManageMoney)?;
        let mut record = self.webhook(id).await?;
        if enabled && record.disabled.is_none() {
            self.inner.store.outbox_hurry(&id.to_string(), self.now()).await?;
        } else if enabled {
            // Where it leads may have become forbidden.
            let targets = self.inner.post.targets();
            let url = targets.check_url(&record.url)?;
            targets.check_name(&url).await?;
            record.disabled = None;
            self.inner.store.webhook_update(&record).await?;
        } else {
            let disabled = Disabled { at: self.now(), reason: "it was disabled by hand".into() };
            self.inner.store.webhook_disable(id, &disabled).await?;
        }
        self.webhook_get(caller, id).await
    }

    /// Sends a `webhook.test` event at once, also to one that is disabled, and tells what came back. One that says that it
    /// is gone is disabled, as by any delivery.
    pub async fn webhook_test(&self, caller: &Caller, id: WebhookId) -> Result<WebhookAnswer> {
        caller.require(Action::ManageMoney)?;
        let record = self.webhook(id).await?;
        let event_id = EventId::generate();
        let body = json!({
            "specversion": "1.0",
            "id": event_id,
            "source": "sandboxer",
            "type": "dev.sandboxer.webhook.test",
            "subject": id,
            "time": self.now(),
            "sequence": 0,
            "datacontenttype": "application/json",
            "data": {"webhook_id": id, "text": "this is a test"},
        });
        let started = Instant::now();
        let sent =
            Webhook::new(self, record).send(&event_id.to_string(), body.to_string().into_bytes()).await;
        let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (status, error) = match sent {
            Ok(status) => (Some(status), None),
            Err(undelivered) => {
                let why = undelivered.error.chain().join(": ");
                if undelivered.gone {
                    let disabled = Disabled { at: self.now(), reason: why.clone() };
                    self.inner.store.webhook_disable(id, &disabled).await?;
                }
                (undelivered.status, Some(why))
            }
        };
        Ok(WebhookAnswer { delivered: error.is_none(), status, error, took_ms, event_id })
    }

    pub(super) async fn webhook(&self, id: WebhookId) -> Result<WebhookRecord> {
        self.inner.store.webhook_get(id).await?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("there is no webhook `{id}`"))
                .with_hint("`sandboxer webhooks list` shows what is there")
        })
    }

    /// On the disk before the store knows of it, so that no endpoint is ever without.
    fn new_secret(&self, id: WebhookId) -> Result<(Secret, SecretRef)> {
        let secret = sign::new_secret()?;
        let name = format!("{id}-{}", EventId::generate().to_string().trim_start_matches(EventId::PREFIX));
        self.vault()?.put(&name, secret.expose())?;
        Ok((secret, SecretRef { name, created_at: self.now(), expires_at: None }))
    }

    /// What cannot be removed signs nothing any more; it only takes up room.
    fn forget_secrets(&self, secrets: &[SecretRef]) {
        for secret in secrets {
            if let Err(error) = self.vault().and_then(|vault| vault.remove(&secret.name)) {
                tracing::warn!(error = ?error, "a secret that is not needed any more stays");
            }
        }
    }

    async fn view(&self, record: WebhookRecord) -> Result<WebhookView> {
        let mut view = view(record, &self.stats_by_sink().await?);
        let sink = view.webhook_id.to_string();
        let waiting = self.inner.store.outbox_stats(&sink).await?;
        (view.last_error, view.next_try_at) = (waiting.last_error, waiting.next_at);
        if view.last_error.is_none() && view.dead > 0 {
            let filter = DeadLetterFilter { sink: Some(sink) };
            let newest = self.inner.store.dead_letters(&filter, None, Limit::new(1)?).await?;
            view.last_error = newest.items.into_iter().next().map(|letter| letter.reason);
        }
        Ok(view)
    }

    async fn stats_by_sink(&self) -> Result<HashMap<String, SinkStats>> {
        let stats = self.inner.store.sink_stats().await?;
        Ok(stats.into_iter().map(|stats| (stats.sink.clone(), stats)).collect())
    }
}

fn check(new: &NewWebhook) -> Result<()> {
    if new.events.is_empty() || new.events.len() > MOST_PATTERNS {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("a webhook names 1 to {MOST_PATTERNS} kinds of events"),
        )
        .with_hint("`*` means all of them"));
    }
    new.events.iter().try_for_each(kinds::check)?;
    let printable = |text: &String| text.len() <= LONGEST_DESCRIPTION && !text.chars().any(char::is_control);
    if !new.description.as_ref().is_none_or(printable) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("a description has up to {LONGEST_DESCRIPTION} printable characters"),
        ));
    }
    Ok(())
}

fn view(record: WebhookRecord, stats: &HashMap<String, SinkStats>) -> WebhookView {
    let stats = stats.get(&record.id.to_string());
    WebhookView {
        webhook_id: record.id,
        url: record.url,
        events: record.patterns,
        description: record.description,
        enabled: record.disabled.is_none(),
        disabled: record.disabled,
        created_at: record.created_at,
        secrets: record
            .secrets
            .into_iter()
            .map(|secret| SecretView { created_at: secret.created_at, expires_at: secret.expires_at })
            .collect(),
        pending: stats.map_or(0, |stats| stats.pending),
        dead: stats.map_or(0, |stats| stats.dead),
        last_error: None,
        next_try_at: None,
    }
}
