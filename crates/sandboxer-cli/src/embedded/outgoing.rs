//! Events on their way out, on the engine of this process.

use async_trait::async_trait;
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::{Dur, Result, WebhookId};
use sandboxer_engine::{NewWebhook, NewWebhookView, ReplayRequest, WebhookAnswer, WebhookView};
use sandboxer_store::{DeadLetter, DeadLetterFilter, SinkStats};

use super::Embedded;
use crate::api::OutgoingApi;

#[async_trait]
impl OutgoingApi for Embedded {
    async fn webhooks(&self) -> Result<Vec<WebhookView>> {
        self.engine.webhook_list(&self.caller).await
    }

    async fn webhook(&self, id: WebhookId) -> Result<WebhookView> {
        self.engine.webhook_get(&self.caller, id).await
    }

    async fn webhook_add(&self, new: &NewWebhook) -> Result<NewWebhookView> {
        self.engine.webhook_create(&self.caller, new.clone()).await
    }

    async fn webhook_remove(&self, id: WebhookId) -> Result<WebhookView> {
        self.engine.webhook_remove(&self.caller, id).await
    }

    async fn webhook_rotate(&self, id: WebhookId, overlap: Option<Dur>) -> Result<NewWebhookView> {
        self.engine.webhook_rotate(&self.caller, id, overlap).await
    }

    async fn webhook_enable(&self, id: WebhookId, enabled: bool) -> Result<WebhookView> {
        self.writing().webhook_enable(&self.caller, id, enabled).await
    }

    async fn webhook_test(&self, id: WebhookId) -> Result<WebhookAnswer> {
        self.engine.webhook_test(&self.caller, id).await
    }

    async fn dead_letters(
        &self,
        sink: Option<&str>,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<DeadLetter>> {
        let filter = DeadLetterFilter { sink: sink.map(str::to_owned) };
        self.engine.dead_letters(&self.caller, &filter, cursor, limit).await
    }

    async fn sinks(&self) -> Result<Vec<SinkStats>> {
        self.engine.sinks(&self.caller).await
    }

    async fn sink_forget(&self, sink: &str) -> Result<u64> {
        self.engine.forget_sink(&self.caller, sink).await
    }

    async fn replay(&self, request: &ReplayRequest) -> Result<u64> {
        self.writing().replay_events(&self.caller, request).await
    }
}
