//! What goes out beyond the queue itself: webhook endpoints, dead letters and their replay.

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::{Error, ErrorKind, EventId, Result, SandboxId, WebhookId};
use serde::{Deserialize, Serialize};

/// What every type of ours starts with; patterns go without it.
pub const TYPE_PREFIX: &str = "dev.sandboxer.";
const LONGEST_PATTERN: usize = 64;

/// Which events: `*`, `sandbox.*` or `sandbox.ready`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String")]
#[schema(value_type = String, example = "sandbox.*")]
pub struct EventPattern(String);

impl EventPattern {
    /// Everything.
    pub fn all() -> Self {
        Self("*".into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it means events of this type, given with or without our prefix.
    pub fn matches(&self, kind: &str) -> bool {
        let kind = kind.strip_prefix(TYPE_PREFIX).unwrap_or(kind);
        match self.0.strip_suffix('*') {
            Some(start) => kind.starts_with(start),
            None => kind == self.0,
        }
    }
}

impl std::str::FromStr for EventPattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let word = |word: &str| {
            !word.is_empty()
                && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        };
        let whole = text;
        // As types are written in events.
        let text = text.strip_prefix(TYPE_PREFIX).unwrap_or(text);
        let named = text.strip_suffix(".*").unwrap_or(text);
        if text.len() <= LONGEST_PATTERN && (text == "*" || named.split('.').all(word)) {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!("`{}` does not say which events", sandboxer_core::suggest::printable(whole)),
        )
        .with_hint(
            "write `*`, a group such as `sandbox.*` or `meter.*`, or one type such as `sandbox.ready`",
        ))
    }
}

impl TryFrom<String> for EventPattern {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

/// A place that events are queued for, and which ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlet {
    /// The name of the sink.
    pub name: String,
    pub patterns: Vec<EventPattern>,
}

impl Outlet {
    pub fn wants(&self, kind: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(kind))
    }
}

/// All events for the sink of this name.
impl From<&str> for Outlet {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), patterns: vec![EventPattern::all()] }
    }
}

/// An endpoint that events are posted to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookRecord {
    pub id: WebhookId,
    pub url: String,
    pub patterns: Vec<EventPattern>,
    pub description: Option<String>,
    pub created_at: Timestamp,
    /// Newest first. All that are valid sign.
    pub secrets: Vec<SecretRef>,
    /// Absent while it is enabled.
    pub disabled: Option<Disabled>,
    /// Grows by one with every write; a write names the version that it read.
    #[serde(skip)]
    pub version: u64,
}

impl WebhookRecord {
    /// What its deliveries are queued under.
    pub fn outlet(&self) -> Outlet {
        Outlet { name: self.id.to_string(), patterns: self.patterns.clone() }
    }
}

/// Where a signing secret is; the secret itself is not in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRef {
    pub name: String,
    pub created_at: Timestamp,
    /// Absent for the newest, which signs until it is replaced.
    pub expires_at: Option<Timestamp>,
}

/// Since when and why an endpoint gets nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Disabled {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub reason: String,
}

/// A delivery that was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DeadLetter {
    /// The number to replay it by.
    pub delivery_id: i64,
    /// `state-hub`, `fin-hub` or a webhook's id.
    pub sink: String,
    pub event_id: EventId,
    /// The event's type.
    #[serde(rename = "type")]
    pub kind: String,
    pub subject: SandboxId,
    pub sequence: u64,
    pub attempts: u32,
    #[schema(value_type = String, format = DateTime)]
    pub queued_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub died_at: Timestamp,
    /// What the last try was answered, or why there was none.
    pub reason: String,
}

/// Which dead letters, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    pub sink: Option<String>,
}

/// What waits and what was given up, per sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SinkStats {
    pub sink: String,
    pub pending: u64,
    pub dead: u64,
}

#[async_trait]
pub trait Outgoing: Send + Sync {
    /// From now on events are queued for it. `Conflict` when there are `most` already.
    async fn webhook_insert(&self, webhook: &WebhookRecord, most: u32) -> Result<()>;

    /// Newest first.
    async fn webhook_list(&self) -> Result<Vec<WebhookRecord>>;

    async fn webhook_get(&self, id: WebhookId) -> Result<Option<WebhookRecord>>;

    /// Writes a change. `Conflict` when somebody wrote in between, `NotFound` when it is not there.
    async fn webhook_update(&self, webhook: &WebhookRecord) -> Result<WebhookRecord>;

    /// Nothing more is queued for it, and what was becomes dead letters. Returns how many those are. Disabling one that
    /// is disabled or not there changes nothing.
    async fn webhook_disable(&self, id: WebhookId, disabled: &Disabled) -> Result<u64>;

    /// Forgets an endpoint with its queue and its dead letters. `NotFound` when it is not there.
    async fn webhook_remove(&self, id: WebhookId) -> Result<WebhookRecord>;

    /// Enabled endpoints for which something is due.
    async fn webhooks_due(&self, now: Timestamp) -> Result<Vec<WebhookRecord>>;

    /// Gives up on a delivery: it becomes a dead letter, and the next of its sandbox is on.
    async fn outbox_bury(&self, id: i64, reason: &str, now: Timestamp) -> Result<()>;

    /// Makes what waits for a sink due now, apart from what is on its way, and ends a pause that it asked for. Returns
    /// how many.
    async fn outbox_hurry(&self, sink: &str, now: Timestamp) -> Result<u64>;

    /// Whose claims there are.
    async fn outbox_claimers(&self) -> Result<Vec<String>>;

    /// Ends the claims of somebody who is no more. Returns how many.
    async fn outbox_release(&self, owner: &str, now: Timestamp) -> Result<u64>;

    /// Newest first. The cursor is opaque; a cursor that is not ours is `InvalidInput`.
    async fn dead_letters(
        &self,
        filter: &DeadLetterFilter,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<DeadLetter>>;

    async fn dead_letter(&self, id: i64) -> Result<Option<DeadLetter>>;

    /// Hubs that a process was told of, by name. Every process queues for them.
    async fn hubs(&self) -> Result<Vec<Outlet>>;

    /// This process runs on and has the URLs of its hubs; to be said about every minute.
    async fn hubs_told(&self, now: Timestamp) -> Result<()>;

    /// Queues nothing for a hub any more, and forgets what waits for it and its dead letters: how many that were.
    /// Absent when it is not known; `IllegalState` when this process or one that runs has its URL.
    async fn hub_forget(&self, sink: &str, now: Timestamp) -> Result<Option<u64>>;

    /// A sink asked to be left alone until then. Nobody claims its deliveries before, unless it is hurried or changed.
    async fn outbox_pause(&self, sink: &str, until: Timestamp) -> Result<()>;

    /// Every sink that has or had something to deliver, every webhook and every hub, by name.
    async fn sink_stats(&self) -> Result<Vec<SinkStats>>;

    /// Queues a dead letter again, behind what is pending for its sandbox. False when there is none of this number.
    async fn replay_dead(&self, id: i64, now: Timestamp) -> Result<bool>;

    /// Queues an event again for each of these that wants it, delivered before or not, unless it is queued already.
    /// Its dead letters go. Returns for how many; `NotFound` when the event is not known any more.
    async fn replay_event(&self, event: EventId, outlets: &[Outlet], now: Timestamp) -> Result<u64>;

    /// Queues every event since a moment again, in the same way. Returns how many.
    async fn replay_since(&self, outlet: &Outlet, since: Timestamp, now: Timestamp) -> Result<u64>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_say() {
        let pattern = |text: &str| text.parse::<EventPattern>();
        for (text, yes, no) in [
            ("*", "dev.sandboxer.sandbox.ready", None),
            ("sandbox.*", "dev.sandboxer.sandbox.ready", Some("dev.sandboxer.sandboxes.ready")),
            ("sandbox.ready", "dev.sandboxer.sandbox.ready", Some("dev.sandboxer.sandbox.ready2")),
            ("meter.*", "meter.recorded", Some("dev.sandboxer.sandbox.ready")),
            ("sandbox.ttl_extended", "dev.sandboxer.sandbox.ttl_extended", Some("sandbox.ttl")),
        ] {
            let pattern = pattern(text).unwrap();
            assert!(pattern.matches(yes), "{text}");
            assert!(no.is_none_or(|no| !pattern.matches(no)), "{text}");
        }
        assert_eq!(pattern("dev.sandboxer.sandbox.ready").unwrap().as_str(), "sandbox.ready");
        assert_eq!(pattern("dev.sandboxer.*").unwrap().as_str(), "*");
        let long = "x".repeat(65);
        for text in [
            "",
            "**",
            "sandbox",
            "*.ready",
            "sandbox.*.x",
            "sandbox*",
            ".",
            "a..b",
            "dev.sandboxer.",
            "a.[b]",
            "a.?",
            "A.b",
            &long,
        ] {
            let refused = pattern(text).is_err();
            // A single word is a type like any other, though none of ours has just one.
            assert_eq!(refused, text != "sandbox", "{text}");
        }
    }
}
