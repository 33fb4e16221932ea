//! Bounds on what is spent in a day or a month.

use sandboxer_core::ledger::{Budget, Period, parse_subject};
use sandboxer_core::{Error, ErrorKind, Money, Result};
use serde::{Deserialize, Serialize};

use super::amounts::check_bound;
use crate::caller::Action;
use crate::{Caller, Engine};

/// A bound on what somebody spends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetRequest {
    /// `org:acme`, `workspace:acme/research`, `key:key_…`, or what an actor type or a profile spends in an organisation:
    /// `actor:acme/agt`, `profile:acme/profile.agent-dev`. Without a name the default organisation is meant.
    pub subject: String,
    pub period: Period,
    /// Zero or more dollars; holds count in full.
    pub limit: Money,
}

impl Engine {
    pub async fn budget_set(&self, caller: &Caller, request: &BudgetRequest) -> Result<Budget> {
        caller.require(Action::ManageMoney)?;
        let subject = parse_subject(&request.subject)?;
        self.inner.store.budget(&subject, request.period, Some(check_bound(request.limit)?)).await?;
        self.budget_of(&subject, request.period).await
    }

    /// The removed one.
    pub async fn budget_remove(&self, caller: &Caller, subject: &str, period: Period) -> Result<Budget> {
        caller.require(Action::ManageMoney)?;
        let subject = parse_subject(subject)?;
        let budget = self.budget_of(&subject, period).await?;
        self.inner.store.budget(&subject, period, None).await?;
        Ok(budget)
    }

    async fn budget_of(&self, subject: &str, period: Period) -> Result<Budget> {
        let budgets = self.inner.store.budgets(self.now()).await?;
        budgets.into_iter().find(|one| one.subject == subject && one.period == period).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("{subject} has no budget for a {period}"))
                .with_hint("`sandboxer credits budget list` shows those that there are")
        })
    }
}
