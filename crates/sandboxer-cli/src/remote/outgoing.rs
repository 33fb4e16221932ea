//! Events on their way out, over HTTP.

use async_trait::async_trait;
use reqwest::Method;
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::{Dur, Result, WebhookId};
use sandboxer_engine::{NewWebhook, NewWebhookView, ReplayRequest, WebhookAnswer, WebhookView};
use sandboxer_store::{DeadLetter, SinkStats};
use serde::Deserialize;
use serde_json::json;

use super::Remote;
use super::money::maybe;
use crate::api::OutgoingApi;

#[derive(Deserialize)]
struct Replayed {
    replayed: u64,
}

#[derive(Deserialize)]
struct Forgotten {
    dropped: u64,
}

#[async_trait]
impl OutgoingApi for Remote {
    async fn webhooks(&self) -> Result<Vec<WebhookView>> {
        let page: Page<WebhookView> = self.client.get(&["v1", "webhooks"]).answer().await?;
        Ok(page.items)
    }

    async fn webhook(&self, id: WebhookId) -> Result<WebhookView> {
        self.client.get(&["v1", "webhooks", &id.to_string()]).answer().await
    }

    async fn webhook_add(&self, new: &NewWebhook) -> Result<NewWebhookView> {
        self.client.post(&["v1", "webhooks"]).json(new)?.answer().await
    }

    async fn webhook_remove(&self, id: WebhookId) -> Result<WebhookView> {
        self.client.call(Method::DELETE, &["v1", "webhooks", &id.to_string()]).answer().await
    }

    async fn webhook_rotate(&self, id: WebhookId, overlap: Option<Dur>) -> Result<NewWebhookView> {
        let call = self.client.post(&["v1", "webhooks", &id.to_string(), "rotate"]);
        call.json(&json!({ "overlap": overlap }))?.answer().await
    }

    async fn webhook_enable(&self, id: WebhookId, enabled: bool) -> Result<WebhookView> {
        let word = if enabled { "enable" } else { "disable" };
        self.client.post(&["v1", "webhooks", &id.to_string(), word]).answer().await
    }

    async fn webhook_test(&self, id: WebhookId) -> Result<WebhookAnswer> {
        self.client.post(&["v1", "webhooks", &id.to_string(), "test"]).answer().await
    }

    async fn dead_letters(
        &self,
        sink: Option<&str>,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<DeadLetter>> {
        let call = self.client.get(&["v1", "events", "dead"]).query("limit", &limit.get().to_string());
        maybe(maybe(call, "sink", sink), "cursor", cursor).answer().await
    }

    async fn sinks(&self) -> Result<Vec<SinkStats>> {
        let page: Page<SinkStats> = self.client.get(&["v1", "events", "sinks"]).answer().await?;
        Ok(page.items)
    }

    async fn sink_forget(&self, sink: &str) -> Result<u64> {
        let call = self.client.call(Method::DELETE, &["v1", "events", "sinks", sink]);
        let answer: Forgotten = call.answer().await?;
        Ok(answer.dropped)
    }

    async fn replay(&self, request: &ReplayRequest) -> Result<u64> {
        let answer: Replayed = self.client.post(&["v1", "events", "replay"]).json(request)?.answer().await?;
        Ok(answer.replayed)
    }
}
