//! Webhook endpoints, dead letters and their replay, in SQLite.

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::{Error, ErrorKind, EventId, Result, WebhookId};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection as _, Row as _};

use super::SqliteStore;
use super::dead::{self, REPLAY_PAUSE};
use super::fault::{Attempt, Fault};
use super::outbox;
use super::rows::{count, micros};
use crate::outgoing::{DeadLetter, DeadLetterFilter, Disabled, Outgoing, Outlet, SinkStats, WebhookRecord};

pub(super) const WEBHOOKS_DUE: &str = "SELECT w.doc, w.version FROM webhooks w WHERE w.disabled_reason IS NULL \
    AND EXISTS (SELECT 1 FROM outbox o INDEXED BY outbox_due WHERE o.sink = w.id AND o.head = 1 AND o.next_at <= ?)";

#[async_trait]
impl Outgoing for SqliteStore {
    async fn webhook_insert(&self, webhook: &WebhookRecord, most: u32) -> Result<()> {
        write!(self, "webhook_insert", c => insert(c, webhook, most))
    }

    async fn webhook_list(&self) -> Result<Vec<WebhookRecord>> {
        read!(self, "webhook_list", c => list(c))
    }

    async fn webhook_get(&self, id: WebhookId) -> Result<Option<WebhookRecord>> {
        read!(self, "webhook_get", c => find(c, id))
    }

    async fn webhook_update(&self, webhook: &WebhookRecord) -> Result<WebhookRecord> {
        write!(self, "webhook_update", c => update(c, webhook))
    }

    async fn webhook_disable(&self, id: WebhookId, disabled: &Disabled) -> Result<u64> {
        write!(self, "webhook_disable", c => disable(c, id, disabled))
    }

    async fn webhook_remove(&self, id: WebhookId) -> Result<WebhookRecord> {
        write!(self, "webhook_remove", c => remove(c, id))
    }

    async fn webhooks_due(&self, now: Timestamp) -> Result<Vec<WebhookRecord>> {
        read!(self, "webhooks_due", c => due(c, now))
    }

    async fn outbox_bury(&self, id: i64, reason: &str, now: Timestamp) -> Result<()> {
        write!(self, "outbox_bury", c => dead::bury(c, id, reason, now))
    }

    async fn outbox_hurry(&self, sink: &str, now: Timestamp) -> Result<u64> {
        write!(self, "outbox_hurry", c => outbox::hurry(c, sink, now))
    }

    async fn outbox_claimers(&self) -> Result<Vec<String>> {
        read!(self, "outbox_claimers", c => outbox::claimers(c))
    }

    async fn outbox_release(&self, owner: &str, now: Timestamp) -> Result<u64> {
        write!(self, "outbox_release", c => outbox::release(c, owner, now))
    }

    async fn dead_letters(
        &self,
        filter: &DeadLetterFilter,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<DeadLetter>> {
        read!(self, "dead_letters", c => dead::list(c, filter, cursor, limit))
    }

    async fn dead_letter(&self, id: i64) -> Result<Option<DeadLetter>> {
        read!(self, "dead_letter", c => dead::find(c, id))
    }

    fn standing_outlets(&self) -> Vec<Outlet> {
        self.outlets.clone()
    }

    async fn sink_stats(&self) -> Result<Vec<SinkStats>> {
        read!(self, "sink_stats", c => dead::stats(c))
    }

    async fn replay_dead(&self, id: i64, now: Timestamp) -> Result<bool> {
        write!(self, "replay_dead", c => dead::replay(c, id, now))
    }

    async fn replay_event(&self, event: EventId, outlets: &[Outlet], now: Timestamp) -> Result<u64> {
        write!(self, "replay_event", c => dead::replay_event(c, event, outlets, now))
    }

    async fn replay_since(&self, outlet: &Outlet, since: Timestamp, now: Timestamp) -> Result<u64> {
        let mut queued = 0;
        let mut next = read!(self, "replay_since", c => dead::first_since(c, since))?;
        while let Some(place) = next {
            let bite = write!(self, "replay_since", c => dead::replay_bite(c, outlet, since, place, now))?;
            queued += bite.queued;
            next = bite.next;
            // Long enough for another process to get its turn: SQLite waits for the lock by polling.
            tokio::time::sleep(REPLAY_PAUSE).await;
        }
        Ok(queued)
    }
}

fn record(row: &SqliteRow) -> Attempt<WebhookRecord> {
    let record: WebhookRecord = serde_json::from_str(row.try_get(0)?)?;
    Ok(WebhookRecord { version: count(row.try_get(1)?)?, ..record })
}

fn not_found(id: WebhookId) -> Fault {
    Fault::Own(
        Error::new(ErrorKind::NotFound, format!("there is no webhook `{id}`"))
            .with_hint("`sandboxer webhooks list` shows what is there"),
    )
}

async fn insert(connection: &mut SqliteConnection, webhook: &WebhookRecord, most: u32) -> Attempt<()> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let there: i64 = sqlx::query_scalar("SELECT count(*) FROM webhooks").fetch_one(&mut *tx).await?;
    if there >= i64::from(most) {
        return Err(Error::new(ErrorKind::Conflict, format!("there are {there} webhooks already"))
            .with_hint(format!("there may be {most}; remove one that is not needed any more"))
            .into());
    }
    sqlx::query("INSERT INTO webhooks (id, version, disabled_reason, patterns, doc) VALUES (?, 1, ?, ?, ?)")
        .bind(webhook.id.to_string())
        .bind(webhook.disabled.as_ref().map(|disabled| disabled.reason.as_str()))
        .bind(serde_json::to_string(&webhook.patterns)?)
        .bind(serde_json::to_string(webhook)?)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}

async fn list(connection: &mut SqliteConnection) -> Attempt<Vec<WebhookRecord>> {
    let rows =
        sqlx::query("SELECT doc, version FROM webhooks ORDER BY id DESC").fetch_all(connection).await?;
    rows.iter().map(record).collect()
}

async fn find(connection: &mut SqliteConnection, id: WebhookId) -> Attempt<Option<WebhookRecord>> {
    let row = sqlx::query("SELECT doc, version FROM webhooks WHERE id = ?")
        .bind(id.to_string())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(record).transpose()
}

async fn due(connection: &mut SqliteConnection, now: Timestamp) -> Attempt<Vec<WebhookRecord>> {
    let rows = sqlx::query(WEBHOOKS_DUE).bind(micros(now)).fetch_all(connection).await?;
    rows.iter().map(record).collect()
}

/// Writes the whole row of one that was read in this transaction or under its version.
async fn put(connection: &mut SqliteConnection, webhook: &WebhookRecord) -> Attempt<bool> {
    let done = sqlx::query(
        "UPDATE webhooks SET version = version + 1, disabled_reason = ?, patterns = ?, doc = ? \
         WHERE id = ? AND version = ?",
    )
    .bind(webhook.disabled.as_ref().map(|disabled| disabled.reason.as_str()))
    .bind(serde_json::to_string(&webhook.patterns)?)
    .bind(serde_json::to_string(webhook)?)
    .bind(webhook.id.to_string())
    .bind(webhook.version as i64)
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

async fn update(connection: &mut SqliteConnection, webhook: &WebhookRecord) -> Attempt<WebhookRecord> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    if !put(&mut tx, webhook).await? {
        let there = find(&mut tx, webhook.id).await?.is_some();
        return Err(if there {
            Error::new(ErrorKind::Conflict, format!("somebody changed webhook `{}` in between", webhook.id))
                .with_hint("look at it again and repeat what is still wanted")
                .into()
        } else {
            not_found(webhook.id)
        });
    }
    tx.commit().await?;
    Ok(WebhookRecord { version: webhook.version + 1, ..webhook.clone() })
}

async fn disable(connection: &mut SqliteConnection, id: WebhookId, disabled: &Disabled) -> Attempt<u64> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let Some(mut webhook) = find(&mut tx, id).await?.filter(|webhook| webhook.disabled.is_none()) else {
        return Ok(0);
    };
    webhook.disabled = Some(disabled.clone());
    put(&mut tx, &webhook).await?;
    let buried = dead::bury_all(&mut tx, &id.to_string(), &disabled.reason, disabled.at).await?;
    tx.commit().await?;
    Ok(buried)
}

async fn remove(connection: &mut SqliteConnection, id: WebhookId) -> Attempt<WebhookRecord> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let webhook = find(&mut tx, id).await?.ok_or_else(|| not_found(id))?;
    let sink = id.to_string();
    for statement in [
        "DELETE FROM webhooks WHERE id = ?",
        "DELETE FROM outbox WHERE sink = ?",
        "DELETE FROM dead_letters WHERE sink = ?",
    ] {
        sqlx::query(statement).bind(&sink).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(webhook)
}
