//! Money on the engine of this process.

use std::io::Cursor;

use async_trait::async_trait;
use sandboxer_core::Result;
use sandboxer_core::exec::BoxRead;
use sandboxer_core::ledger::{Account, Budget, Meter, Period};
use sandboxer_core::page::{Limit, Page};
use sandboxer_engine::{
    BooksAudit, BudgetRequest, CreditRequest, Credited, Credits, EntryQuery, EntryView, Estimate,
    EstimateRequest, LimitRequest, Month, ProviderKeyRequest, ProviderKeyView, StatementFormat, UsageImport,
    UsageReport,
};
use sandboxer_store::MeterFilter;
use tokio_util::io::StreamReader;

use super::Embedded;
use crate::api::{MeterQuery, MoneyApi, UsageQuery};

#[async_trait]
impl MoneyApi for Embedded {
    async fn estimate(&self, request: &EstimateRequest) -> Result<Estimate> {
        self.engine.estimate(&self.caller, request).await
    }

    async fn credits(&self, account: Option<&str>) -> Result<Credits> {
        self.engine.credits(&self.caller, account).await
    }

    async fn credits_add(&self, request: &CreditRequest) -> Result<Credited> {
        self.engine.credits_add(&self.caller, request).await
    }

    async fn credits_limit(&self, request: &LimitRequest) -> Result<Account> {
        self.engine.credits_limit(&self.caller, request).await
    }

    async fn entries(
        &self,
        query: &EntryQuery,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<EntryView>> {
        self.engine.credit_entries(&self.caller, query, cursor, limit).await
    }

    async fn statement(
        &self,
        month: Month,
        account: Option<&str>,
        format: StatementFormat,
    ) -> Result<BoxRead> {
        let text = self.engine.statement(&self.caller, month, account, format).await?;
        let pieces = futures::stream::try_unfold(text, |mut text| async move {
            let piece = text.next().await.map_err(std::io::Error::other)?;
            Ok::<_, std::io::Error>(piece.map(|piece| (Cursor::new(piece.into_bytes()), text)))
        });
        Ok(Box::pin(StreamReader::new(pieces)))
    }

    async fn budget_set(&self, request: &BudgetRequest) -> Result<Budget> {
        self.engine.budget_set(&self.caller, request).await
    }

    async fn budget_remove(&self, subject: &str, period: Period) -> Result<Budget> {
        self.engine.budget_remove(&self.caller, subject, period).await
    }

    async fn audit(&self) -> Result<BooksAudit> {
        self.engine.credits_audit(&self.caller).await
    }

    async fn reconcile(&self, query: UsageQuery) -> Result<UsageReport> {
        let UsageQuery { extension, format, content, from, until, tolerance } = query;
        let import = UsageImport { extension, format, content, from, until, tolerance };
        self.engine.reconcile_usage(&self.caller, &import).await
    }

    async fn provider_keys(&self) -> Result<Vec<ProviderKeyView>> {
        self.engine.provider_keys(&self.caller).await
    }

    async fn provider_key_set(&self, request: &ProviderKeyRequest) -> Result<ProviderKeyView> {
        self.engine.provider_key_set(&self.caller, request).await
    }

    async fn provider_key_remove(&self, workspace: &str, extension: &str) -> Result<ProviderKeyView> {
        self.engine.provider_key_remove(&self.caller, workspace, extension).await
    }

    async fn meters(&self, query: &MeterQuery, cursor: Option<&str>, limit: Limit) -> Result<Page<Meter>> {
        let MeterQuery { sandbox, extension, from, until } = query.clone();
        let filter = MeterFilter { sandbox, extension, owner_key: None, from, until };
        self.engine.meters(&self.caller, filter, cursor, limit).await
    }
}
