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

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::extension::Usage;
use sandboxer_core::ledger::{Account, Budget, Entry, Meter, Period};
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::sandbox::SandboxRecord;
use sandboxer_core::{Money, Result, SandboxId};
use sqlx::sqlite::SqliteConnection;

use super::SqliteStore;
use super::fault::Attempt;
use crate::ledger::{Audit, Books, EntryFilter, Ledger, MeterFilter, OwnKey, Transfer};

pub(super) use transfer::Queue;

/// What a change of a sandbox does to the books, in the transaction of the change.
pub(super) async fn apply(
    connection: &mut SqliteConnection,
    record: &SandboxRecord,
    books: &Books,
) -> Attempt<()> {
    if let Some(hold) = &books.hold {
        holds::hold(connection, record.id(), hold).await?;
    }
    if !books.meters.is_empty() {
        meters::write(connection, record, &books.meters).await?;
    }
    if let Some(settle) = &books.settle {
        holds::settle(connection, record.id(), settle).await?;
    }
    Ok(())
}

#[async_trait]
impl Ledger for SqliteStore {
    async fn transfer(&self, transfer: &Transfer) -> Result<Vec<Entry>> {
        transfer::transfer(self, transfer).await
    }

    async fn account(&self, account: &str) -> Result<Option<Account>> {
        match self.direct.read(|connection| accounts::direct(connection, account)) {
            Some(found) => Ok(found),
            None => read!(self, "account", c => accounts::get(c, account)),
        }
    }

    async fn accounts(&self) -> Result<Vec<Account>> {
        read!(self, "accounts", c => accounts::list(c))
    }

    async fn overdraft(&self, account: &str, overdraft: Money) -> Result<Account> {
        write!(self, "overdraft", c => accounts::overdraft(c, account, overdraft))
    }

    async fn entries(&self, filter: &EntryFilter, after: i64, limit: Limit) -> Result<Vec<Entry>> {
        read!(self, "entries", c => entries::after(c, filter, after, limit))
    }

    async fn budget(&self, subject: &str, period: Period, limit: Option<Money>) -> Result<()> {
        write!(self, "budget", c => budgets::set(c, subject, period, limit))
    }

    async fn budgets(&self, now: Timestamp) -> Result<Vec<Budget>> {
        read!(self, "budgets", c => budgets::list(c, now))
    }

    async fn meters(&self, filter: &MeterFilter, cursor: Option<&str>, limit: Limit) -> Result<Page<Meter>> {
        read!(self, "meters", c => meters::list(c, filter, cursor, limit))
    }

    async fn seen_alive(&self, sandbox: SandboxId, at: Timestamp, usage: Option<&Usage>) -> Result<()> {
        // Asked for every sandbox every few moments, and most have no meters: only who has one takes the write lock.
        if !read!(self, "seen_alive", c => meters::is_news(c, sandbox, at))? {
            return Ok(());
        }
        write!(self, "seen_alive", c => meters::seen_alive(c, sandbox, at, usage))
    }

    async fn last_alive(&self, sandbox: SandboxId) -> Result<Option<(Timestamp, Option<Usage>)>> {
        read!(self, "last_alive", c => meters::last_alive(c, sandbox))
    }

    async fn audit(&self) -> Result<Audit> {
        read!(self, "audit", c => audit::audit(c))
    }

    async fn own_key_put(&self, key: &OwnKey) -> Result<()> {
        write!(self, "own_key_put", c => own_keys::put(c, key))
    }

    async fn own_key(&self, organisation: &str, workspace: &str, extension: &str) -> Result<Option<OwnKey>> {
        let read = |c: &rusqlite::Connection| own_keys::direct(c, organisation, workspace, extension);
        match self.direct.read(read) {
            Some(found) => Ok(found),
            None => read!(self, "own_key", c => own_keys::find(c, organisation, workspace, extension)),
        }
    }

    async fn own_keys(&self) -> Result<Vec<OwnKey>> {
        read!(self, "own_keys", c => own_keys::list(c))
    }

    async fn own_key_remove(&self, organisation: &str, workspace: &str, extension: &str) -> Result<OwnKey> {
        write!(self, "own_key_remove", c => own_keys::remove(c, organisation, workspace, extension))
    }
}
