//! Writing transactions with their entries.

use std::collections::HashMap;

use rusqlite::Connection;
use sandboxer_core::ledger::{Entry, Kind};

use super::amount;
use crate::sqlite::fault::{Attempt, Fault, is_constraint};
use crate::sqlite::query::query;
use crate::sqlite::rows::moment;

const TRANSACTION: &str =
    "INSERT INTO ledger_transactions (id, kind, sandbox_id, memo, time) VALUES (?, ?, ?, ?, ?)";
const ENTRY: &str =
    "INSERT INTO ledger_entries (transaction_id, account, amount, balance, time) VALUES (?, ?, ?, ?, ?)";

/// A row with the time of the newest transaction in its third column, to be joined to a query of seven columns or more.
macro_rules! latest {
    ($rest:literal) => {
        concat!(
            "SELECT 'latest', NULL, time",
            $rest,
            " FROM ledger_entries WHERE position = (SELECT max(position) FROM ledger_entries)"
        )
    };
}
pub(super) use latest;

/// How an account stands in the middle of a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    pub(super) balance: i64,
    pub(super) overdraft: i64,
}

impl Standing {
    /// What can be taken from it.
    pub(super) fn available(self) -> i64 {
        self.balance.saturating_add(self.overdraft)
    }
}

/// The accounts of a transaction as they were read, and what is going to be written.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    accounts: HashMap<String, Standing>,
    /// When the newest transaction was entered, in microseconds.
    latest: Option<i64>,
    transactions: Vec<Transaction>,
}

/// A transaction that is going to be written.
#[derive(Debug)]
struct Transaction {
    id: String,
    kind: Kind,
    sandbox: Option<String>,
    memo: String,
    time: i64,
    entries: Vec<NewEntry>,
}

#[derive(Debug)]
struct NewEntry {
    account: String,
    amount: i64,
    balance: i64,
}

/// One line of a transaction.
pub(super) type Line<'a> = (&'a str, i64);

/// What a transaction is about.
pub(super) struct Head<'a> {
    pub(super) id: &'a str,
    pub(super) kind: Kind,
    pub(super) sandbox: Option<&'a str>,
    pub(super) memo: &'a str,
    /// Microseconds.
    pub(super) time: i64,
}

impl Sheet {
    pub(super) fn know(&mut self, account: String, standing: Standing) {
        self.accounts.insert(account, standing);
    }

    /// The time of the newest transaction in the books.
    pub(super) fn know_latest(&mut self, time: i64) {
        self.latest = Some(time);
    }

    /// Absent when it was never opened.
    pub(super) fn standing(&self, account: &str) -> Option<Standing> {
        self.accounts.get(account).copied()
    }

    /// Adds a transaction. Whether its lines sum to zero and who may pay is the caller's to know; nothing is changed
    /// when a balance would leave its bounds.
    pub(super) fn post(&mut self, head: &Head<'_>, lines: &[Line<'_>]) -> Attempt<()> {
        let mut balances = Vec::with_capacity(lines.len());
        for (account, moved) in lines {
            let standing = self.standing(account).unwrap_or_default();
            balances.push(amount::add(account, standing.balance, *moved)?);
        }
        // A clock that goes back does not change what a month that is over had: order and time agree.
        let time = self.latest.map_or(head.time, |latest| latest.max(head.time));
        self.latest = Some(time);
        let mut entries = Vec::with_capacity(lines.len());
        for ((account, moved), balance) in lines.iter().zip(balances) {
            match self.accounts.get_mut(*account) {
                Some(standing) => standing.balance = balance,
                None => self.know((*account).to_owned(), Standing { balance, overdraft: 0 }),
            }
            entries.push(NewEntry { account: (*account).to_owned(), amount: *moved, balance });
        }
        self.transactions.push(Transaction {
            id: head.id.to_owned(),
            kind: head.kind,
            sandbox: head.sandbox.map(str::to_owned),
            memo: head.memo.to_owned(),
            time,
            entries,
        });
        Ok(())
    }

    /// Writes what was posted, and tells the entries by their transactions.
    pub(super) fn write(self, connection: &Connection) -> Attempt<Vec<Entry>> {
        let mut written = Vec::new();
        for Transaction { id, kind, sandbox, memo, time, entries } in self.transactions {
            query(TRANSACTION)
                .bind(&id)
                .bind(kind.as_str())
                .bind(&sandbox)
                .bind(&memo)
                .bind(time)
                .run(connection)
                .map_err(defect)?;
            let sandbox_id = sandbox.as_deref().map(str::parse).transpose()?;
            for NewEntry { account, amount, balance } in entries {
                query(ENTRY)
                    .bind(&id)
                    .bind(&account)
                    .bind(amount)
                    .bind(balance)
                    .bind(time)
                    .run(connection)
                    .map_err(defect)?;
                written.push(Entry {
                    position: connection.last_insert_rowid(),
                    transaction: id.clone(),
                    kind,
                    account,
                    amount: amount::money(amount),
                    balance: amount::money(balance),
                    sandbox_id,
                    memo: memo.clone(),
                    time: moment(time)?,
                });
            }
        }
        Ok(written)
    }
}

/// A rule of the schema that refuses what was decided before is a defect, and not the conflict that a repeat may solve.
pub(super) fn defect(fault: Fault) -> Fault {
    match fault {
        Fault::Sql(error) if is_constraint(&error) => {
            Fault::internal(format!("the books refuse an entry: {error}"))
        }
        other => other,
    }
}
