//! The monthly statement of an account: what it had, every entry, what was used where, what it has.

mod csv_text;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use sandboxer_core::ledger::{Entry, FEES, Kind, held_account};
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::suggest::printable;
use sandboxer_core::{Dur, Error, ErrorKind, Money, Result, SandboxId};
use sandboxer_store::{EntryFilter, MeterFilter};
use serde::{Deserialize, Serialize};

use crate::caller::Action;
use crate::{Caller, Engine};

/// Entries that one statement carries at most.
const MOST_ENTRIES: usize = 200_000;

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
    pub entries: Vec<Entry>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ExtensionTotal {
    pub extension: String,
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
    pub time: Dur,
    /// By the price of each interval; what is charged is never above what was held.
    pub cost: Money,
}

/// A month of the calendar, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Month(Date);

impl std::str::FromStr for Month {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::new(ErrorKind::InvalidInput, format!("`{}` is not a month", printable(text)))
                .with_hint("months are written `2026-11`")
        };
        let is_shaped = text.len() == 7
            && text.bytes().enumerate().all(|(at, b)| if at == 4 { b == b'-' } else { b.is_ascii_digit() });
        let year: i16 = text.get(..4).and_then(|year| year.parse().ok()).ok_or_else(wrong)?;
        let month: i8 = text.get(5..).and_then(|month| month.parse().ok()).ok_or_else(wrong)?;
        if !is_shaped || !(1970..=9998).contains(&year) {
            return Err(wrong());
        }
        Date::new(year, month, 1).map(Self).map_err(|_| wrong())
    }
}

impl std::fmt::Display for Month {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:02}", self.0.year(), self.0.month())
    }
}

impl Month {
    /// Its first moment and the first moment after it.
    fn bounds(self) -> Result<(Timestamp, Timestamp)> {
        let start = |date: Date| {
            date.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp()).map_err(|source| {
                Error::new(ErrorKind::InvalidInput, "the month is out of range").with_source(source)
            })
        };
        let next = if self.0.month() == 12 {
            Date::new(self.0.year() + 1, 1, 1)
        } else {
            Date::new(self.0.year(), self.0.month() + 1, 1)
        };
        let next = next.map_err(|source| {
            Error::new(ErrorKind::InvalidInput, "the month is out of range").with_source(source)
        })?;
        Ok((start(self.0)?, start(next)?))
    }
}

impl Statement {
    /// As a table for a spreadsheet: the opening balance, the entries, the totals, the closing balance.
    pub fn to_csv(&self) -> Result<String> {
        csv_text::write(self)
    }
}

impl Engine {
    pub async fn statement(&self, caller: &Caller, month: Month, account: Option<&str>) -> Result<Statement> {
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
        let (from, until) = month.bounds()?;
        let opening = self.balance_at(&account, from).await?;
        let filter = |account: Option<String>| EntryFilter {
            account,
            from: Some(from),
            until: Some(until),
            ..EntryFilter::default()
        };
        let entries = self.all_entries(&filter(Some(account.clone()))).await?;
        let sum = |kinds: &[Kind]| {
            let amounts =
                entries.iter().filter(|entry| kinds.contains(&entry.kind)).map(|entry| entry.amount);
            amounts.into_iter().try_fold(Money::ZERO, Money::checked_add)
        };
        let credited = sum(&[Kind::Credit, Kind::Adjustment])?;
        let moved = sum(&[Kind::Hold, Kind::Settlement])?;
        let used = self.settled(&account, &filter(None)).await?;
        let charged = used
            .by_extension
            .iter()
            .try_fold(Money::ZERO, |all, one| all.checked_add(one.upstream)?.checked_add(one.fee))?;
        Ok(Statement {
            month: month.to_string(),
            from,
            until,
            opening,
            closing: opening.checked_add(credited)?.checked_add(moved)?,
            credited,
            charged,
            held: Money::from_nanos(-moved.nanos() - charged.nanos()),
            by_extension: used.by_extension,
            by_meter: self.metered(&used.sandboxes).await?,
            account,
            entries,
        })
    }

    /// What an account had at a moment, by the time of entries, however they are ordered.
    async fn balance_at(&self, account: &str, at: Timestamp) -> Result<Money> {
        let of = |from, until| EntryFilter {
            account: Some(account.to_owned()),
            from,
            until,
            ..EntryFilter::default()
        };
        let first = self.inner.store.entries(&of(Some(at), None), 0, Limit::new(1)?).await?;
        let Some(first) = first.first() else {
            let account = self.inner.store.account(account).await?;
            return Ok(account.map_or(Money::ZERO, |account| account.balance));
        };
        let mut balance = Money::from_nanos(first.balance.nanos() - first.amount.nanos());
        let mut after = first.position;
        loop {
            let late = self.inner.store.entries(&of(None, Some(at)), after, Limit::new(Limit::MAX)?).await?;
            for entry in &late {
                balance = balance.checked_add(entry.amount)?;
                after = entry.position;
            }
            if late.len() < Limit::MAX as usize {
                return Ok(balance);
            }
        }
    }

    async fn all_entries(&self, filter: &EntryFilter) -> Result<Vec<Entry>> {
        let mut out: Vec<Entry> = Vec::new();
        loop {
            let after = out.last().map_or(0, |entry| entry.position);
            let page = self.inner.store.entries(filter, after, Limit::new(Limit::MAX)?).await?;
            let is_last = page.len() < Limit::MAX as usize;
            out.extend(page);
            if out.len() > MOST_ENTRIES {
                return Err(Error::new(
                    ErrorKind::TooLarge,
                    format!("a statement has at most {MOST_ENTRIES} entries, and this month has more"),
                )
                .with_hint("`sandboxer credits history --from … --until …` gives them in pages"));
            }
            if is_last {
                return Ok(out);
            }
        }
    }

    /// What settlements of the account paid, found in the other entries of their transactions.
    async fn settled(&self, account: &str, month: &EntryFilter) -> Result<Used> {
        let held = held_account(account);
        let mut used = Used::default();
        let mut totals: BTreeMap<String, ExtensionTotal> = BTreeMap::new();
        let mut open: Vec<Entry> = Vec::new();
        let mut after = 0;
        loop {
            let page = self.inner.store.entries(month, after, Limit::new(Limit::MAX)?).await?;
            let is_last = page.len() < Limit::MAX as usize;
            after = page.last().map_or(after, |entry| entry.position);
            for entry in page.into_iter().filter(|entry| entry.kind == Kind::Settlement) {
                if open.first().is_some_and(|first| first.transaction != entry.transaction) {
                    used.add(&open, &held, &mut totals)?;
                    open.clear();
                }
                open.push(entry);
            }
            if is_last {
                used.add(&open, &held, &mut totals)?;
                used.by_extension = totals.into_values().collect();
                return Ok(used);
            }
        }
    }

    /// The meters of these sandboxes, added up.
    async fn metered(&self, sandboxes: &BTreeSet<SandboxId>) -> Result<Vec<MeterTotal>> {
        let mut totals: BTreeMap<(String, String, String), MeterTotal> = BTreeMap::new();
        for id in sandboxes {
            let stored = self.inner.store.get(*id).await?;
            let profile = stored.map_or_else(String::new, |row| {
                row.record.sandbox.profile.split('@').next().unwrap_or_default().to_owned()
            });
            let filter = MeterFilter { sandbox: Some(*id), ..MeterFilter::default() };
            let mut cursor: Option<String> = None;
            loop {
                let limit = Limit::new(Limit::MAX)?;
                let Page { items, next_cursor } =
                    self.inner.store.meters(&filter, cursor.as_deref(), limit).await?;
                for meter in items {
                    let key = (meter.extension.clone(), profile.clone(), meter.meter.clone());
                    let total = totals.entry(key).or_insert_with(|| MeterTotal {
                        extension: meter.extension,
                        profile: profile.clone(),
                        meter: meter.meter,
                        ..MeterTotal::default()
                    });
                    total.cost = total.cost.checked_add(meter.cost)?;
                    let time = total.time.as_millis().saturating_add(meter.time.as_millis());
                    total.time = Dur::from_millis(time);
                }
                cursor = next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
        }
        Ok(totals.into_values().collect())
    }
}

#[derive(Default)]
struct Used {
    by_extension: Vec<ExtensionTotal>,
    sandboxes: BTreeSet<SandboxId>,
}

impl Used {
    /// Adds one transaction, if it settles a hold of this account.
    fn add(
        &mut self,
        entries: &[Entry],
        held: &str,
        totals: &mut BTreeMap<String, ExtensionTotal>,
    ) -> Result<()> {
        if !entries.iter().any(|entry| entry.account == held) {
            return Ok(());
        }
        self.sandboxes.extend(entries.iter().filter_map(|entry| entry.sandbox_id));
        let provider = entries.iter().find_map(|entry| entry.account.strip_prefix("provider:"));
        let fee = entries.iter().filter(|entry| entry.account == FEES).map(|entry| entry.amount);
        let fee = fee.into_iter().try_fold(Money::ZERO, Money::checked_add)?;
        if provider.is_none() && fee == Money::ZERO {
            // A void: everything went back.
            return Ok(());
        }
        // With a key of the workspace's own only the fee is charged here.
        let name = provider.unwrap_or("own provider key");
        let total = totals
            .entry(name.to_owned())
            .or_insert_with(|| ExtensionTotal { extension: name.to_owned(), ..ExtensionTotal::default() });
        total.sandboxes += 1;
        total.fee = total.fee.checked_add(fee)?;
        for entry in entries.iter().filter(|entry| entry.account.starts_with("provider:")) {
            total.upstream = total.upstream.checked_add(entry.amount)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_and_their_bounds() {
        let (from, until) = "2026-12".parse::<Month>().unwrap().bounds().unwrap();
        assert_eq!(
            (from.to_string(), until.to_string()),
            ("2026-12-01T00:00:00Z".into(), "2027-01-01T00:00:00Z".into())
        );
        assert_eq!("2026-02".parse::<Month>().unwrap().to_string(), "2026-02");
        for text in
            ["", "2026", "2026-13", "2026-00", "26-11", "2026-1", "2026/11", "9999-12", "-026-11", "+026-11"]
        {
            assert!(text.parse::<Month>().is_err(), "{text}");
        }
    }
}
