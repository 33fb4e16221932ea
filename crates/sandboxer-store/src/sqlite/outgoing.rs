//! Webhook endpoints, dead letters and their replay, in SQLite.

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::{Connection, Row};
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::{Error, ErrorKind, EventId, Result, WebhookId};

use super::SqliteStore;
use super::dead::{self, REPLAY_PAUSE};
use super::fault::{Attempt, Fault};
use super::query::query;
use super::rows::{count, micros};
use super::{hubs, outbox};
use crate::outgoing::{DeadLetter, DeadLetterFilter, Disabled, Outgoing, Outlet, SinkStats, WebhookRecord};

pub(super) const WEBHOOKS_DUE: &str = "SELECT w.doc, w.version FROM webhooks w WHERE w.disabled_reason IS NULL \
    AND EXISTS (SELECT 1 FROM outbox o INDEXED BY outbox_due WHERE o.sink = w.id AND o.head = 1 AND o.next_at <= ?1) \
    AND NOT EXISTS (SELECT 1 FROM pauses p WHERE p.sink = w.id AND p.until > ?1)";

#[async_trait]
impl Outgoing for SqliteStore {
    async fn webhook_insert(&self, webhook: &WebhookRecord, most: u32) -> Result<()> {
        self.write("webhook_insert", |c| insert(c, webhook, most)).await
    }

    async fn webhook_list(&self) -> Result<Vec<WebhookRecord>> {
        self.read("webhook_list", list)
    }

    async fn webhook_get(&self, id: WebhookId) -> Result<Option<WebhookRecord>> {
        self.read("webhook_get", |c| find(c, id))
    }

    async fn webhook_update(&self, webhook: &WebhookRecord) -> Result<WebhookRecord> {
        self.write("webhook_update", |c| update(c, webhook)).await
    }

    async fn webhook_disable(&self, id: WebhookId, disabled: &Disabled) -> Result<u64> {
        self.write("webhook_disable", |c| disable(c, id, disabled)).await
    }

    async fn webhook_remove(&self, id: WebhookId) -> Result<WebhookRecord> {
        self.write("webhook_remove", |c| remove(c, id)).await
    }

    async fn webhooks_due(&self, now: Timestamp) -> Result<Vec<WebhookRecord>> {
        self.read("webhooks_due", |c| due(c, now))
    }

    async fn outbox_bury(&self, id: i64, reason: &str, now: Timestamp) -> Result<()> {
        self.write("outbox_bury", |c| dead::bury(c, id, reason, now)).await
    }

    async fn outbox_hurry(&self, sink: &str, now: Timestamp) -> Result<u64> {
        self.write("outbox_hurry", |c| outbox::hurry(c, sink, now)).await
    }

    async fn outbox_claimers(&self) -> Result<Vec<String>> {
        self.read("outbox_claimers", outbox::claimers)
    }

    async fn outbox_release(&self, owner: &str, now: Timestamp) -> Result<u64> {
        self.write("outbox_release", |c| outbox::release(c, owner, now)).await
    }

    async fn dead_letters(
        &self,
        filter: &DeadLetterFilter,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<DeadLetter>> {
        self.read_much("dead_letters", |c| dead::list(c, filter, cursor, limit))
    }

    async fn dead_letter(&self, id: i64) -> Result<Option<DeadLetter>> {
        self.read("dead_letter", |c| dead::find(c, id))
    }

    async fn hubs(&self) -> Result<Vec<Outlet>> {
        self.read("hubs", hubs::list)
    }

    async fn hubs_told(&self, now: Timestamp) -> Result<()> {
        if self.own_hubs.is_empty() {
            return Ok(());
        }
        self.write("hubs_told", |c| hubs::told(c, &self.own_hubs, now)).await
    }

    async fn hub_forget(&self, sink: &str, now: Timestamp) -> Result<Option<u64>> {
        if self.own_hubs.iter().any(|hub| hub.name == sink) {
            return Err(hubs::in_use(sink));
        }
        self.write("hub_forget", |c| hubs::forget(c, sink, now)).await
    }

    async fn outbox_pause(&self, sink: &str, until: Timestamp) -> Result<()> {
        self.write("outbox_pause", |c| outbox::pause(c, sink, until)).await
    }

    async fn sink_stats(&self) -> Result<Vec<SinkStats>> {
        self.read_much("sink_stats", dead::stats)
    }

    async fn replay_dead(&self, id: i64, now: Timestamp) -> Result<bool> {
        self.write("replay_dead", |c| dead::replay(c, id, now)).await
    }

    async fn replay_event(&self, event: EventId, outlets: &[Outlet], now: Timestamp) -> Result<u64> {
        self.write("replay_event", |c| dead::replay_event(c, event, outlets, now)).await
    }

    async fn replay_since(&self, outlet: &Outlet, since: Timestamp, now: Timestamp) -> Result<u64> {
        let mut queued = 0;
        let mut next = self.read_much("replay_since", |c| dead::first_since(c, since))?;
        while let Some(place) = next {
            let bite =
                self.write("replay_since", |c| dead::replay_bite(c, outlet, since, place, now)).await?;
            queued += bite.queued;
            next = bite.next;
            // Long enough for another process to get its turn: SQLite waits for the lock by polling.
            tokio::time::sleep(REPLAY_PAUSE).await;
        }
        Ok(queued)
    }
}

fn record(row: &Row<'_>) -> Attempt<WebhookRecord> {
    let record: WebhookRecord = serde_json::from_str(row.get_ref(0)?.as_str()?)?;
    Ok(WebhookRecord { version: count(row.get(1)?)?, ..record })
}

fn not_found(id: WebhookId) -> Fault {
    Fault::Own(
        Error::new(ErrorKind::NotFound, format!("there is no webhook `{id}`"))
            .with_hint("`sandboxer webhooks list` shows what is there"),
    )
}

fn insert(connection: &Connection, webhook: &WebhookRecord, most: u32) -> Attempt<()> {
    let there: i64 = query("SELECT count(*) FROM webhooks").one(connection, |row| Ok(row.get(0)?))?;
    if there >= i64::from(most) {
        return Err(Error::new(ErrorKind::Conflict, format!("there are {there} webhooks already"))
            .with_hint(format!("there may be {most}; remove one that is not needed any more"))
            .into());
    }
    query("INSERT INTO webhooks (id, version, disabled_reason, patterns, doc) VALUES (?, 1, ?, ?, ?)")
        .bind(webhook.id.to_string())
        .bind(webhook.disabled.as_ref().map(|disabled| disabled.reason.as_str()))
        .bind(serde_json::to_string(&webhook.patterns)?)
        .bind(serde_json::to_string(webhook)?)
        .run(connection)?;
    Ok(())
}

fn list(connection: &Connection) -> Attempt<Vec<WebhookRecord>> {
    query("SELECT doc, version FROM webhooks ORDER BY id DESC").all(connection, record)
}

fn find(connection: &Connection, id: WebhookId) -> Attempt<Option<WebhookRecord>> {
    query("SELECT doc, version FROM webhooks WHERE id = ?").bind(id.to_string()).first(connection, record)
}

fn due(connection: &Connection, now: Timestamp) -> Attempt<Vec<WebhookRecord>> {
    query(WEBHOOKS_DUE).bind(micros(now)).all(connection, record)
}

/// Writes the whole row of one that was read in this transaction or under its version.
fn put(connection: &Connection, webhook: &WebhookRecord) -> Attempt<bool> {
    let done = query(
        "UPDATE webhooks SET version = version + 1, disabled_reason = ?, patterns = ?, doc = ? \
         WHERE id = ? AND version = ?",
    )
    .bind(webhook.disabled.as_ref().map(|disabled| disabled.reason.as_str()))
    .bind(serde_json::to_string(&webhook.patterns)?)
    .bind(serde_json::to_string(webhook)?)
    .bind(webhook.id.to_string())
    .bind(webhook.version as i64)
    .run(connection)?;
    // Whoever changes an endpoint wants it served as it is now.
    query("DELETE FROM pauses WHERE sink = ?").bind(webhook.id.to_string()).run(connection)?;
    Ok(done == 1)
}

fn update(connection: &Connection, webhook: &WebhookRecord) -> Attempt<WebhookRecord> {
    if !put(connection, webhook)? {
        let there = find(connection, webhook.id)?.is_some();
        return Err(if there {
            Error::new(ErrorKind::Conflict, format!("somebody changed webhook `{}` in between", webhook.id))
                .with_hint("look at it again and repeat what is still wanted")
                .into()
        } else {
            not_found(webhook.id)
        });
    }
    Ok(WebhookRecord { version: webhook.version + 1, ..webhook.clone() })
}

fn disable(connection: &Connection, id: WebhookId, disabled: &Disabled) -> Attempt<u64> {
    let Some(mut webhook) = find(connection, id)?.filter(|webhook| webhook.disabled.is_none()) else {
        return Ok(0);
    };
    webhook.disabled = Some(disabled.clone());
    put(connection, &webhook)?;
    let buried = dead::bury_all(connection, &id.to_string(), &disabled.reason, disabled.at)?;
    Ok(buried)
}

fn remove(connection: &Connection, id: WebhookId) -> Attempt<WebhookRecord> {
    let webhook = find(connection, id)?.ok_or_else(|| not_found(id))?;
    let sink = id.to_string();
    for statement in [
        "DELETE FROM webhooks WHERE id = ?",
        "DELETE FROM outbox WHERE sink = ?",
        "DELETE FROM dead_letters WHERE sink = ?",
        "DELETE FROM pauses WHERE sink = ?",
    ] {
        query(statement).bind(&sink).run(connection)?;
    }
    Ok(webhook)
}
