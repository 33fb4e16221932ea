//! The monthly statement of an account: what it had, every entry, what was used where, what it has.
//!
//! The sums are made first, page by page; then the text is written while the entries are read again. However long the
//! month was, only a page of it is in memory.

mod csv_text;
mod month;
mod text;
mod totals;

use jiff::Timestamp;
use sandboxer_core::ledger::Entry;
use sandboxer_core::suggest::printable;
use sandboxer_core::tariff::ProviderKey;
use sandboxer_core::{Dur, Error, ErrorKind, Money, Result};
use serde::{Deserialize, Serialize};

use crate::caller::Action;
use crate::{Caller, Engine};

pub use month::Month;
pub use text::StatementText;

/// One account's month. `opening` and the amounts of all entries add up to `closing`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Statement {
    pub account: String,
    /// `2026-11`, in UTC.
    #[schema(example = "2026-11")]
    pub month: String,
    #[schema(value_type = String, format = DateTime)]
    pub from: Timestamp,
    /// The first moment that is not in it.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    pub opening: Money,
    pub closing: Money,
    /// Paid in, and put right.
    pub credited: Money,
    /// What sandboxes were charged that ended in this month.
    pub charged: Money,
    /// What is set aside at the end of the month more than at its beginning.
    pub held: Money,
    /// What went to each provider, and what the platform added.
    pub by_extension: Vec<ExtensionTotal>,
    /// What was metered of the sandboxes that ended in this month.
    pub by_meter: Vec<MeterTotal>,
    /// The last field: they are written while they are read.
    pub entries: Vec<Entry>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ExtensionTotal {
    pub extension: String,
    /// With `own` the provider bills `upstream` to the workspace itself, and only the fee is charged here.
    #[serde(default)]
    pub provider_key: ProviderKey,
    pub sandboxes: u64,
    /// What the provider gets.
    pub upstream: Money,
    pub fee: Money,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MeterTotal {
    pub extension: String,
    /// Without its version; empty where the sandbox is not remembered any more.
    pub profile: String,
    pub meter: String,
    /// With `own` it is on the provider's bill to the workspace and not charged here.
    #[serde(default)]
    pub provider_key: ProviderKey,
    pub time: Dur,
    /// By the price of each interval; what is charged is never above what was held.
    pub cost: Money,
}

/// How a statement is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementFormat {
    /// A document for programs.
    Json,
    /// A table for a spreadsheet: the opening balance, the entries, the totals, the closing balance.
    Csv,
}

impl StatementFormat {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
        }
    }
}

impl std::str::FromStr for StatementFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Json, Self::Csv].into_iter().find(|format| format.as_str() == text).ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, format!("a statement has no format `{}`", printable(text)))
                .with_hint("`json` or `csv`")
        })
    }
}

impl Engine {
    /// The statement, to be read in pieces.
    pub async fn statement(
        &self,
        caller: &Caller,
        month: Month,
        account: Option<&str>,
        format: StatementFormat,
    ) -> Result<StatementText> {
        caller.require(Action::UseSandboxes)?;
        let account = match account {
            Some(text) => self.opened_account(caller, text).await?,
            None => self.paying_account(caller).await?,
        };
        let own_key = caller.key_text().map(|key| format!("key:{key}"));
        if !caller.may(Action::Operate) && own_key.as_ref() != Some(&account) {
            return Err(Error::new(
                ErrorKind::Denied,
                format!("the statement of {account} shows what others did; it is for operators"),
            )
            .with_hint("`sandboxer credits history` shows what was charged for your own sandboxes"));
        }
        let (statement, through) = self.statement_totals(account, month).await?;
        Ok(StatementText::new(self.clone(), statement, through, format))
    }
}
