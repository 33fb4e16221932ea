//! The sums of a statement, made a page at a time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandboxer_core::ledger::{Entry, FEES, Kind, held_account};
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::tariff::ProviderKey;
use sandboxer_core::{Dur, Money, Result, SandboxId};
use sandboxer_store::{EntryFilter, MeterFilter, Told};

use super::{ExtensionTotal, MeterTotal, Month, Statement};
use crate::Engine;

/// The extension of a sandbox whose row is not kept any more, in a settlement that names none.
const FORGOTTEN: &str = "forgotten";

impl Engine {
    /// Everything but the entries, and the position of the last one that was counted.
    pub(super) async fn statement_totals(&self, account: String, month: Month) -> Result<(Statement, i64)> {
        let (from, until) = month.bounds()?;
        let opening = self.balance_at(&account, from).await?;
        let (mut credited, mut moved) = (Money::ZERO, Money::ZERO);
        let mut pages = Pages::of(&account, Some(from), Some(until));
        while let Some(page) = pages.next(self).await? {
            for entry in page {
                match entry.kind {
                    Kind::Credit | Kind::Adjustment => credited = credited.checked_add(entry.amount)?,
                    Kind::Hold | Kind::Settlement => moved = moved.checked_add(entry.amount)?,
                }
            }
        }
        let through = pages.after;
        let used = self.settled(&account, from, until).await?;
        let by_extension: Vec<ExtensionTotal> = used.by_extension.into_values().collect();
        let charged = by_extension.iter().try_fold(Money::ZERO, |all, one| {
            let upstream = match one.provider_key {
                ProviderKey::Platform => one.upstream,
                ProviderKey::Own => Money::ZERO,
            };
            all.checked_add(upstream)?.checked_add(one.fee)
        })?;
        let statement = Statement {
            month: month.to_string(),
            from,
            until,
            opening,
            closing: opening.checked_add(credited)?.checked_add(moved)?,
            credited,
            charged,
            held: Money::from_nanos(-moved.nanos() - charged.nanos()),
            by_extension,
            by_meter: used.by_meter.into_values().collect(),
            account,
            entries: Vec::new(),
        };
        Ok((statement, through))
    }

    /// What an account had at a moment, by the time of entries, however they are ordered.
    async fn balance_at(&self, account: &str, at: Timestamp) -> Result<Money> {
        let later = Pages::of(account, Some(at), None).filter;
        let first = self.inner.store.entries(&later, 0, Limit::new(1)?).await?;
        let Some(first) = first.first() else {
            let account = self.inner.store.account(account).await?;
            return Ok(account.map_or(Money::ZERO, |account| account.balance));
        };
        let mut balance = Money::from_nanos(first.balance.nanos() - first.amount.nanos());
        let mut late = Pages { after: first.position, ..Pages::of(account, None, Some(at)) };
        while let Some(page) = late.next(self).await? {
            for entry in page {
                balance = balance.checked_add(entry.amount)?;
            }
        }
        Ok(balance)
    }

    /// What settlements of the account paid: each of them ends a hold of it, and is followed through its transaction.
    async fn settled(&self, account: &str, from: Timestamp, until: Timestamp) -> Result<Used> {
        let mut used = Used::default();
        let mut pages = Pages::of(&held_account(account), Some(from), Some(until));
        while let Some(page) = pages.next(self).await? {
            for end in page.into_iter().filter(|entry| entry.kind == Kind::Settlement) {
                let Some(sandbox) = end.sandbox_id else { continue };
                let of_sandbox = EntryFilter { sandbox: Some(sandbox), ..EntryFilter::default() };
                let mut lines = Pages { filter: of_sandbox, after: 0, is_over: false };
                let mut whole = Vec::new();
                while let Some(lines) = lines.next(self).await? {
                    whole.extend(lines.into_iter().filter(|line| line.transaction == end.transaction));
                }
                let told = self.told(sandbox).await?;
                let key = used.add(&whole, told.as_ref())?;
                self.add_metered(sandbox, told.as_ref(), key, &mut used).await?;
            }
        }
        self.add_free(account, from, until, &mut used).await?;
        Ok(used)
    }

    /// What ended without a charge: with a key of the workspace's own and no fee, the provider's bill is all that there
    /// is.
    async fn add_free(
        &self,
        account: &str,
        from: Timestamp,
        until: Timestamp,
        used: &mut Used,
    ) -> Result<()> {
        let mut after = (from, None);
        loop {
            let page = self.inner.store.ended_free(account, after, until, Limit::new(Limit::MAX)?).await?;
            let Some((last, at)) = page.last() else { return Ok(()) };
            after = (*at, Some(*last));
            for (sandbox, _) in page {
                let told = self.told(sandbox).await?;
                if told.as_ref().is_some_and(|told| told.provider_key == ProviderKey::Own) {
                    let key = used.add(&[], told.as_ref())?;
                    self.add_metered(sandbox, told.as_ref(), key, used).await?;
                }
            }
        }
    }

    /// What is told of a sandbox that has ended: kept with its hold, or in its row while that is there.
    async fn told(&self, sandbox: SandboxId) -> Result<Option<Told>> {
        if let Some(told) = self.inner.store.told(sandbox).await? {
            return Ok(Some(told));
        }
        let row = self.inner.store.get(sandbox).await?.map(|row| row.record.sandbox);
        Ok(row.map(|row| Told {
            profile: row.profile.split('@').next().unwrap_or_default().to_owned(),
            provider_key: row.cost.as_ref().map(|cost| cost.provider_key).unwrap_or_default(),
            upstream: row.cost.as_ref().map(|cost| cost.upstream).unwrap_or_default(),
            extension: row.extension,
        }))
    }

    /// The meters of a sandbox that ended.
    async fn add_metered(
        &self,
        sandbox: SandboxId,
        told: Option<&Told>,
        provider_key: ProviderKey,
        used: &mut Used,
    ) -> Result<()> {
        let profile = told.map(|told| told.profile.clone()).unwrap_or_default();
        let filter = MeterFilter { sandbox: Some(sandbox), ..MeterFilter::default() };
        let mut cursor: Option<String> = None;
        loop {
            let Page { items, next_cursor } =
                self.inner.store.meters(&filter, cursor.as_deref(), Limit::new(Limit::MAX)?).await?;
            for meter in items {
                let is_own = provider_key == ProviderKey::Own;
                let key = (meter.extension.clone(), is_own, profile.clone(), meter.meter.clone());
                let total = used.by_meter.entry(key).or_insert_with(|| MeterTotal {
                    extension: meter.extension,
                    profile: profile.clone(),
                    meter: meter.meter,
                    provider_key,
                    ..MeterTotal::default()
                });
                total.cost = total.cost.checked_add(meter.cost)?;
                total.time = Dur::from_millis(total.time.as_millis().saturating_add(meter.time.as_millis()));
            }
            cursor = next_cursor;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }
}

/// The entries of an account between two moments, a page at a time.
pub(super) struct Pages {
    filter: EntryFilter,
    /// The position of the last one that was read.
    after: i64,
    is_over: bool,
}

impl Pages {
    pub(super) fn of(account: &str, from: Option<Timestamp>, until: Option<Timestamp>) -> Self {
        let filter = EntryFilter { account: Some(account.to_owned()), from, until, ..EntryFilter::default() };
        Self { filter, after: 0, is_over: false }
    }

    pub(super) async fn next(&mut self, engine: &Engine) -> Result<Option<Vec<Entry>>> {
        if self.is_over {
            return Ok(None);
        }
        let page = engine.inner.store.entries(&self.filter, self.after, Limit::new(Limit::MAX)?).await?;
        self.is_over = page.len() < Limit::MAX as usize;
        self.after = page.last().map_or(self.after, |entry| entry.position);
        Ok((!page.is_empty()).then_some(page))
    }
}

/// What was paid for sandboxes that ended, added up.
#[derive(Default)]
struct Used {
    /// By extension, and whether the workspace's own key was used.
    by_extension: BTreeMap<(String, bool), ExtensionTotal>,
    /// By extension, whether the workspace's own key was used, profile and meter.
    by_meter: BTreeMap<(String, bool, String, String), MeterTotal>,
}

impl Used {
    /// Adds one settlement of a sandbox, and says whose key at the provider it was made with.
    fn add(&mut self, lines: &[Entry], told: Option<&Told>) -> Result<ProviderKey> {
        let (mut provider, mut upstream, mut fee) = (None, Money::ZERO, Money::ZERO);
        for line in lines {
            if let Some(name) = line.account.strip_prefix("provider:") {
                provider = Some(name);
                upstream = upstream.checked_add(line.amount)?;
            } else if line.account == FEES {
                fee = fee.checked_add(line.amount)?;
            }
        }
        // With a key of the workspace's own only the fee is in the books.
        let own = told.filter(|told| told.provider_key == ProviderKey::Own);
        let is_own = own.is_some() || (provider.is_none() && fee > Money::ZERO);
        let provider_key = if is_own { ProviderKey::Own } else { ProviderKey::Platform };
        upstream = own.map_or(upstream, |told| told.upstream);
        if provider.is_none() && fee == Money::ZERO && upstream == Money::ZERO {
            // A void: everything went back.
            return Ok(provider_key);
        }
        let name = provider.or(told.map(|told| told.extension.as_str())).unwrap_or(FORGOTTEN);
        let total = self.by_extension.entry((name.to_owned(), is_own)).or_default();
        name.clone_into(&mut total.extension);
        total.provider_key = provider_key;
        total.sandboxes += 1;
        total.upstream = total.upstream.checked_add(upstream)?;
        total.fee = total.fee.checked_add(fee)?;
        Ok(provider_key)
    }
}
