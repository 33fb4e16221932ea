//! Money over HTTP.

use async_trait::async_trait;
use jiff::Timestamp;
use reqwest::Method;
use sandboxer_core::exec::BoxRead;
use sandboxer_core::ledger::{Account, Budget, Meter, Period};
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::{Money, Result};
use sandboxer_engine::{
    BooksAudit, BudgetRequest, CreditRequest, Credited, Credits, EntryQuery, EntryView, Estimate,
    EstimateRequest, LimitRequest, Month, ProviderKeyRequest, ProviderKeyView, StatementFormat, UsageFormat,
    UsageReport,
};

use super::Remote;
use super::client::Call;
use crate::api::{MeterQuery, MoneyApi, UsageQuery};

/// A parameter where there is something to say.
pub(super) fn maybe(call: Call, name: &str, value: Option<impl ToString>) -> Call {
    match value {
        Some(value) => call.query(name, &value.to_string()),
        None => call,
    }
}

fn period(call: Call, from: Option<Timestamp>, until: Option<Timestamp>) -> Call {
    maybe(maybe(call, "from", from), "until", until)
}

#[async_trait]
impl MoneyApi for Remote {
    async fn estimate(&self, request: &EstimateRequest) -> Result<Estimate> {
        self.client.post(&["v1", "estimate"]).json(request)?.answer().await
    }

    async fn credits(&self, account: Option<&str>) -> Result<Credits> {
        maybe(self.client.get(&["v1", "credits"]), "account", account).answer().await
    }

    async fn credits_add(&self, request: &CreditRequest) -> Result<Credited> {
        self.client.post(&["v1", "credits"]).json(request)?.answer().await
    }

    async fn credits_limit(&self, request: &LimitRequest) -> Result<Account> {
        self.client.call(Method::PUT, &["v1", "credits", "limit"]).json(request)?.answer().await
    }

    async fn entries(
        &self,
        query: &EntryQuery,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<EntryView>> {
        let call = self.client.get(&["v1", "credits", "entries"]).query("limit", &limit.get().to_string());
        let call = maybe(call, "account", query.account.as_ref());
        let call = maybe(call, "sandbox", query.sandbox);
        maybe(period(call, query.from, query.until), "cursor", cursor).answer().await
    }

    async fn statement(
        &self,
        month: Month,
        account: Option<&str>,
        format: StatementFormat,
    ) -> Result<BoxRead> {
        let call = self.client.get(&["v1", "credits", "statement"]).query("month", &month.to_string());
        maybe(call.query("format", format.as_str()), "account", account).body().await
    }

    async fn budget_set(&self, request: &BudgetRequest) -> Result<Budget> {
        self.client.call(Method::PUT, &["v1", "credits", "budgets"]).json(request)?.answer().await
    }

    async fn budget_remove(&self, subject: &str, period: Period) -> Result<Budget> {
        let call = self.client.call(Method::DELETE, &["v1", "credits", "budgets"]);
        call.query("subject", subject).query("period", period.as_str()).answer().await
    }

    async fn audit(&self) -> Result<BooksAudit> {
        self.client.get(&["v1", "credits", "audit"]).answer().await
    }

    async fn reconcile(&self, query: UsageQuery) -> Result<UsageReport> {
        let kind = match query.format {
            UsageFormat::Csv => "text/csv",
            UsageFormat::Json => "application/json",
        };
        let call = self.client.post(&["v1", "credits", "reconcile"]).query("extension", &query.extension);
        let tolerance = (query.tolerance != Money::ZERO).then_some(query.tolerance);
        let call = maybe(period(call, query.from, query.until), "tolerance", tolerance);
        call.bytes(kind, query.content)?.answer().await
    }

    async fn provider_keys(&self) -> Result<Vec<ProviderKeyView>> {
        let page: Page<ProviderKeyView> =
            self.client.get(&["v1", "credits", "provider-keys"]).answer().await?;
        Ok(page.items)
    }

    async fn provider_key_set(&self, request: &ProviderKeyRequest) -> Result<ProviderKeyView> {
        self.client.call(Method::PUT, &["v1", "credits", "provider-keys"]).json(request)?.answer().await
    }

    async fn provider_key_remove(&self, workspace: &str, extension: &str) -> Result<ProviderKeyView> {
        let call = self.client.call(Method::DELETE, &["v1", "credits", "provider-keys"]);
        call.query("workspace", workspace).query("extension", extension).answer().await
    }

    async fn meters(&self, query: &MeterQuery, cursor: Option<&str>, limit: Limit) -> Result<Page<Meter>> {
        let call = self.client.get(&["v1", "meters"]).query("limit", &limit.get().to_string());
        let call = maybe(call, "sandbox", query.sandbox);
        let call = maybe(call, "extension", query.extension.as_ref());
        maybe(period(call, query.from, query.until), "cursor", cursor).answer().await
    }
}
