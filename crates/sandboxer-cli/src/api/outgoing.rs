//! What commands ask about events on their way out.

use async_trait::async_trait;
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::{Dur, Result, WebhookId};
use sandboxer_engine::{NewWebhook, NewWebhookView, ReplayRequest, WebhookAnswer, WebhookView};
use sandboxer_store::{DeadLetter, SinkStats};

#[async_trait]
pub(crate) trait OutgoingApi: Send + Sync {
    async fn webhooks(&self) -> Result<Vec<WebhookView>>;
    async fn webhook(&self, id: WebhookId) -> Result<WebhookView>;
    async fn webhook_add(&self, new: &NewWebhook) -> Result<NewWebhookView>;
    async fn webhook_remove(&self, id: WebhookId) -> Result<WebhookView>;
    async fn webhook_rotate(&self, id: WebhookId, overlap: Option<Dur>) -> Result<NewWebhookView>;
    async fn webhook_enable(&self, id: WebhookId, enabled: bool) -> Result<WebhookView>;
    async fn webhook_test(&self, id: WebhookId) -> Result<WebhookAnswer>;
    async fn dead_letters(
        &self,
        sink: Option<&str>,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<DeadLetter>>;
    async fn sinks(&self) -> Result<Vec<SinkStats>>;
    /// How many deliveries were dropped.
    async fn sink_forget(&self, sink: &str) -> Result<u64>;
    /// How many deliveries are queued again.
    async fn replay(&self, request: &ReplayRequest) -> Result<u64>;
}
