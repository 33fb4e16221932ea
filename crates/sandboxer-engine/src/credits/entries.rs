//! The lines of the ledger and the meters, as whoever asks may see them.

use jiff::Timestamp;
use sandboxer_core::ledger::{Entry, Kind, Meter, parse_account};
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Money, Result, SandboxId};
use sandboxer_store::{EntryFilter, MeterFilter};
use serde::{Deserialize, Serialize};

use super::sight::{may_know, payer_of};
use crate::caller::Action;
use crate::{Caller, Engine};

/// The word for entries of every account.
pub const ALL_ACCOUNTS: &str = "all";

/// Which entries are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryQuery {
    /// An account, [`ALL_ACCOUNTS`], or the one that pays for the caller.
    pub account: Option<String>,
    pub sandbox: Option<SandboxId>,
    pub from: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// One line of the ledger: so much more, or less, on one account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EntryView {
    /// Its place in the order of all entries.
    pub position: i64,
    /// Entries with the same transaction sum to zero.
    pub transaction: String,
    pub kind: Kind,
    pub account: String,
    pub amount: Money,
    /// What the account had afterwards; absent where the caller may not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance: Option<Money>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<SandboxId>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub memo: String,
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
}

impl EntryView {
    fn of(entry: Entry, caller: &Caller) -> Self {
        let Entry { position, transaction, kind, account, amount, balance, sandbox_id, memo, time } = entry;
        let is_known = may_know(caller, account.strip_prefix("held:").unwrap_or(&account));
        let balance = is_known.then_some(balance);
        Self { position, transaction, kind, account, amount, balance, sandbox_id, memo, time }
    }
}

impl Engine {
    /// Entries, oldest first. The cursor is a place in the books.
    pub async fn credit_entries(
        &self,
        caller: &Caller,
        query: &EntryQuery,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<EntryView>> {
        caller.require(Action::UseSandboxes)?;
        let after = cursor.map(position).transpose()?.unwrap_or(0);
        check_range(query.from, query.until)?;
        let pays = self.paying_account(caller).await?;
        let account = match &query.account {
            Some(text) if text == ALL_ACCOUNTS => {
                caller.require(Action::Operate)?;
                None
            }
            // Also where its balance is not the caller's to know: the entries are.
            Some(text) if parse_account(text).is_ok_and(|account| account == pays) => Some(pays),
            Some(text) => Some(self.opened_account(caller, text).await?),
            // One sandbox's money is followed through all accounts.
            None if query.sandbox.is_some() => None,
            None => Some(pays),
        };
        // Whose a sandbox was is asked of its hold, which outlives it.
        let subject = caller.visible_key().map(|key| format!("key:{key}"));
        if let (Some(_), Some(sandbox)) = (&subject, query.sandbox) {
            let any =
                EntryFilter { sandbox: Some(sandbox), subject: subject.clone(), ..EntryFilter::default() };
            if self.inner.store.entries(&any, 0, Limit::new(1)?).await?.is_empty() {
                self.load(caller, sandbox).await?;
            }
        }
        let filter =
            EntryFilter { account, sandbox: query.sandbox, subject, from: query.from, until: query.until };
        let mut items = self.inner.store.entries(&filter, after, limit).await?;
        let next_cursor = (items.len() >= limit.get() as usize)
            .then(|| items.last().map(|last| last.position.to_string()))
            .flatten();
        if !caller.may(Action::Operate) {
            // What the house has is not theirs to know.
            let payers = payer_of(caller).accounts();
            items.retain(|entry| {
                let account = entry.account.strip_prefix("held:").unwrap_or(&entry.account);
                payers.iter().any(|payer| payer == account)
            });
        }
        let items = items.into_iter().map(|entry| EntryView::of(entry, caller)).collect();
        Ok(Page { items, next_cursor })
    }

    /// Meters, newest first.
    pub async fn meters(
        &self,
        caller: &Caller,
        filter: MeterFilter,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<Meter>> {
        caller.require(Action::UseSandboxes)?;
        check_range(filter.from, filter.until)?;
        let filter = MeterFilter { owner_key: caller.visible_key(), ..filter };
        if let (Some(_), Some(sandbox)) = (&filter.owner_key, filter.sandbox) {
            let any = MeterFilter {
                sandbox: Some(sandbox),
                owner_key: filter.owner_key.clone(),
                ..MeterFilter::default()
            };
            if self.inner.store.meters(&any, None, Limit::new(1)?).await?.items.is_empty() {
                self.load(caller, sandbox).await?;
            }
        }
        self.inner.store.meters(&filter, cursor, limit).await
    }
}

pub(crate) fn check_range(from: Option<Timestamp>, until: Option<Timestamp>) -> Result<()> {
    match (from, until) {
        (Some(from), Some(until)) if from >= until => {
            Err(Error::new(ErrorKind::InvalidInput, format!("nothing lies between {from} and {until}"))
                .with_hint("`from` is the first moment that counts, `until` the first that does not"))
        }
        _ => Ok(()),
    }
}

fn position(cursor: &str) -> Result<i64> {
    cursor.parse().ok().filter(|position| *position >= 0).ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, format!("`{}` is not a cursor", printable(cursor)))
            .with_hint("take `next_cursor` of the page before, as it is")
    })
}
