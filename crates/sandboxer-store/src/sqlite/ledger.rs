//! The books in SQLite.
//!
//! A change of a sandbox moves money in the change's own transaction, in one read and one write; transfers of many
//! callers share one. Balances are kept by a trigger beside the entries, which nobody changes or removes.

mod accounts;
mod amount;
mod audit;
mod batch;
mod budgets;
mod days;
mod entries;
mod holds;
mod meters;
mod own_keys;
#[cfg(test)]
mod plans;
mod post;
mod transfer;

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::Connection;
use sandboxer_core::extension::Usage;
use sandboxer_core::ledger::{Account, Budget, Entry, Meter, Period};
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::sandbox::SandboxRecord;
use sandboxer_core::{Money, Result, SandboxId};

use super::SqliteStore;
use super::fault::Attempt;
use crate::ledger::{Audit, Books, EntryFilter, Ledger, MeterFilter, OwnKey, Told, Transfer};

pub(super) use transfer::Queue;

/// How long a sign of life waits to be written. The next one says the same.
const SIGN_PATIENCE: Duration = Duration::from_millis(100);

/// What a change of a sandbox does to the books, in the transaction of the change.
pub(super) fn apply(connection: &Connection, record: &SandboxRecord, books: &Books) -> Attempt<()> {
    if let Some(hold) = &books.hold {
        holds::hold(connection, record.id(), hold)?;
    }
    if !books.meters.is_empty() {
        meters::write(connection, record, &books.meters)?;
    }
    if let Some(settle) = &books.settle {
        holds::settle(connection, record.id(), settle)?;
    }
    Ok(())
}

#[async_trait]
impl Ledger for SqliteStore {
    async fn transfer(&self, transfer: &Transfer) -> Result<Vec<Entry>> {
        transfer::transfer(self, transfer).await
    }

    async fn account(&self, account: &str) -> Result<Option<Account>> {
        self.read("account", |c| accounts::get(c, account))
    }

    async fn accounts(&self) -> Result<Vec<Account>> {
        self.read("accounts", accounts::list)
    }

    async fn overdraft(&self, account: &str, overdraft: Money) -> Result<Account> {
        self.write("overdraft", |c| accounts::overdraft(c, account, overdraft)).await
    }

    async fn entries(&self, filter: &EntryFilter, after: i64, limit: Limit) -> Result<Vec<Entry>> {
        self.read_much("entries", |c| entries::after(c, filter, after, limit))
    }

    async fn ended_free(
        &self,
        account: &str,
        after: (Timestamp, Option<SandboxId>),
        until: Timestamp,
        limit: Limit,
    ) -> Result<Vec<(SandboxId, Timestamp)>> {
        self.read_much("ended_free", |c| holds::free(c, account, after, until, limit))
    }

    async fn told(&self, sandbox: SandboxId) -> Result<Option<Told>> {
        self.read("told", |c| holds::told(c, sandbox))
    }

    async fn budget(&self, subject: &str, period: Period, limit: Option<Money>) -> Result<()> {
        self.write("budget", |c| budgets::set(c, subject, period, limit)).await
    }

    async fn budgets(&self, now: Timestamp) -> Result<Vec<Budget>> {
        self.read("budgets", |c| budgets::list(c, now))
    }

    async fn meters(&self, filter: &MeterFilter, cursor: Option<&str>, limit: Limit) -> Result<Page<Meter>> {
        self.read_much("meters", |c| meters::list(c, filter, cursor, limit))
    }

    async fn seen_alive(&self, sandbox: SandboxId, at: Timestamp, usage: Option<&Usage>) -> Result<()> {
        // Asked for every sandbox every few moments, and most have no meters: only who has one takes the write lock.
        if !self.read("seen_alive", |c| meters::is_news(c, sandbox, at))? {
            return Ok(());
        }
        // Whoever looks at a sandbox does not wait for another process because of this.
        self.write_within(SIGN_PATIENCE, "seen_alive", |c| meters::seen_alive(c, sandbox, at, usage)).await
    }

    async fn last_alive(&self, sandbox: SandboxId) -> Result<Option<(Timestamp, Option<Usage>)>> {
        self.read("last_alive", |c| meters::last_alive(c, sandbox))
    }

    async fn audit(&self) -> Result<Audit> {
        self.read_much("audit", audit::audit)
    }

    async fn own_key_put(&self, key: &OwnKey) -> Result<()> {
        self.write("own_key_put", |c| own_keys::put(c, key)).await
    }

    async fn own_key(&self, organisation: &str, workspace: &str, extension: &str) -> Result<Option<OwnKey>> {
        self.read("own_key", |c| own_keys::find(c, organisation, workspace, extension))
    }

    async fn own_keys(&self) -> Result<Vec<OwnKey>> {
        self.read("own_keys", own_keys::list)
    }

    async fn own_key_remove(&self, organisation: &str, workspace: &str, extension: &str) -> Result<OwnKey> {
        self.write("own_key_remove", |c| own_keys::remove(c, organisation, workspace, extension)).await
    }
}
