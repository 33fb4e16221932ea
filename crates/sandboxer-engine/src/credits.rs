//! Credits: accounts, what is paid in, budgets, entries and meters, as whoever asks may see them.
//!
//! Operators see all of it. Everybody else sees the balance of their own key and workspace, the name of the account that
//! pays for them, and the entries and meters of their own sandboxes.

mod amounts;
mod budgets;
mod entries;
mod payments;
mod provider_keys;
mod sight;

use sandboxer_core::Result;
use sandboxer_core::ledger::{Account, Budget};
use serde::{Deserialize, Serialize};

use crate::caller::Action;
use crate::{Caller, Engine};
use sight::{not_opened, own_accounts, visible_account};

pub use amounts::{parse_adjustment, parse_amount};
pub use budgets::BudgetRequest;
pub(crate) use entries::check_range;
pub use entries::{ALL_ACCOUNTS, EntryQuery, EntryView};
pub use payments::{CreditKind, CreditRequest, Credited, LimitRequest};
pub use provider_keys::{ProviderKeyRequest, ProviderKeyView, parse_workspace};
pub(crate) use sight::may_know;

/// What a caller may know about balances and budgets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Credits {
    /// The account that the caller's next sandbox is charged to.
    pub pays: String,
    /// Those whose balance the caller may know: that of the key and that of the workspace, and for operators all.
    pub accounts: Vec<Account>,
    pub budgets: Vec<Budget>,
}

/// Whether the books are right: then nothing is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BooksAudit {
    pub ok: bool,
    pub transactions: u64,
    pub entries: u64,
    pub wrong: Vec<String>,
}

impl Engine {
    /// Accounts and budgets that the caller may see, or the one account that is named.
    pub async fn credits(&self, caller: &Caller, account: Option<&str>) -> Result<Credits> {
        caller.require(Action::UseSandboxes)?;
        let pays = self.paying_account(caller).await?;
        let named = account.map(|text| visible_account(caller, text)).transpose()?;
        let all = caller.may(Action::Operate);
        let own = own_accounts(caller);
        let accounts = match &named {
            Some(name) => {
                vec![self.inner.store.account(name).await?.ok_or_else(|| not_opened(caller, name))?]
            }
            None if all => self.inner.store.accounts().await?,
            None => {
                let mut found = Vec::new();
                for name in &own {
                    found.extend(self.inner.store.account(name).await?);
                }
                found
            }
        };
        let mut budgets = self.inner.store.budgets(self.now()).await?;
        budgets.retain(|budget| match &named {
            Some(name) => budget.subject == *name,
            None => all || own.contains(&budget.subject),
        });
        Ok(Credits { pays, accounts, budgets })
    }

    pub async fn credits_audit(&self, caller: &Caller) -> Result<BooksAudit> {
        caller.require(Action::Operate)?;
        let audit = self.inner.store.audit().await?;
        Ok(BooksAudit {
            ok: audit.wrong.is_empty(),
            transactions: audit.transactions,
            entries: audit.entries,
            wrong: audit.wrong,
        })
    }
}
