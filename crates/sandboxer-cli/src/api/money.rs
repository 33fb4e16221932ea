//! What commands ask about money.

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::exec::BoxRead;
use sandboxer_core::ledger::{Account, Budget, Meter, Period};
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::{Money, Result, SandboxId};
use sandboxer_engine::{
    BooksAudit, BudgetRequest, CreditRequest, Credited, Credits, EntryQuery, EntryView, Estimate,
    EstimateRequest, LimitRequest, Month, ProviderKeyRequest, ProviderKeyView, StatementFormat, UsageFormat,
    UsageReport,
};

/// Which meters to list.
#[derive(Clone, Debug, Default)]
pub(crate) struct MeterQuery {
    pub(crate) sandbox: Option<SandboxId>,
    pub(crate) extension: Option<String>,
    pub(crate) from: Option<Timestamp>,
    pub(crate) until: Option<Timestamp>,
}

/// A provider's export, and what of ours it is compared with.
pub(crate) struct UsageQuery {
    pub(crate) extension: String,
    pub(crate) format: UsageFormat,
    pub(crate) content: Vec<u8>,
    pub(crate) from: Option<Timestamp>,
    pub(crate) until: Option<Timestamp>,
    pub(crate) tolerance: Money,
}

#[async_trait]
pub(crate) trait MoneyApi: Send + Sync {
    async fn estimate(&self, request: &EstimateRequest) -> Result<Estimate>;
    async fn credits(&self, account: Option<&str>) -> Result<Credits>;
    async fn credits_add(&self, request: &CreditRequest) -> Result<Credited>;
    async fn credits_limit(&self, request: &LimitRequest) -> Result<Account>;
    async fn entries(
        &self,
        query: &EntryQuery,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<EntryView>>;
    /// The text as it is written.
    async fn statement(
        &self,
        month: Month,
        account: Option<&str>,
        format: StatementFormat,
    ) -> Result<BoxRead>;
    async fn budget_set(&self, request: &BudgetRequest) -> Result<Budget>;
    async fn budget_remove(&self, subject: &str, period: Period) -> Result<Budget>;
    async fn audit(&self) -> Result<BooksAudit>;
    async fn reconcile(&self, query: UsageQuery) -> Result<UsageReport>;
    async fn provider_keys(&self) -> Result<Vec<ProviderKeyView>>;
    async fn provider_key_set(&self, request: &ProviderKeyRequest) -> Result<ProviderKeyView>;
    async fn provider_key_remove(&self, workspace: &str, extension: &str) -> Result<ProviderKeyView>;
    async fn meters(&self, query: &MeterQuery, cursor: Option<&str>, limit: Limit) -> Result<Page<Meter>>;
}
