//! Writing transactions with their entries.

use std::collections::HashMap;

use sandboxer_core::ledger::Kind;
use serde_json::{Value, json};

use super::amount;
use crate::sqlite::fault::{Attempt, Fault, is_constraint};

/// The statements that write postings, as the first of a batch: the transactions are its parameter 1 and the entries
/// its parameter 2. A batch is one message to the connection's thread.
macro_rules! post {
    ($rest:literal) => {
        concat!(
            "INSERT INTO ledger_transactions (id, kind, sandbox_id, memo, time) \
             SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each($1); \
             INSERT INTO ledger_entries (transaction_id, account, amount, balance, time) \
             SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each($2)",
            $rest
        )
    };
}
pub(super) use post;

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
    transactions: Vec<Value>,
    entries: Vec<Value>,
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
        for ((account, moved), balance) in lines.iter().zip(balances) {
            match self.accounts.get_mut(*account) {
                Some(standing) => standing.balance = balance,
                None => self.know((*account).to_owned(), Standing { balance, overdraft: 0 }),
            }
            self.entries.push(json!([head.id, account, moved, balance, time]));
        }
        self.transactions.push(json!([head.id, head.kind.as_str(), head.sandbox, head.memo, time]));
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// The first two parameters of a batch that begins with [`post!`].
    pub(super) fn into_parameters(self) -> (String, String) {
        (Value::from(self.transactions).to_string(), Value::from(self.entries).to_string())
    }
}

/// A rule of the schema that refuses what was decided before is a defect, and not the conflict that a repeat may solve.
pub(super) fn defect(error: sqlx::Error) -> Fault {
    if is_constraint(&error) {
        return Fault::internal(format!("the books refuse an entry: {error}"));
    }
    error.into()
}
