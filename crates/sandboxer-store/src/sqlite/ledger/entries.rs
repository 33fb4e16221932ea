//! Entries, oldest first.

use rusqlite::{Connection, Row};
use sandboxer_core::ledger::Entry;
use sandboxer_core::page::Limit;

use super::amount::money;
use crate::ledger::EntryFilter;
use crate::sqlite::fault::Attempt;
use crate::sqlite::query::query;
use crate::sqlite::rows::{micros, moment};

/// The columns that [`entry`] reads; CROSS JOIN fixes the order in which the tables are walked.
macro_rules! select_entries {
    ($rest:literal) => {
        concat!(
            "SELECT e.position, e.transaction_id, t.kind, e.account, e.amount, e.balance, t.sandbox_id, t.memo, e.time \
             FROM ",
            $rest,
            " AND e.position > ?1 AND e.time >= ?2 AND e.time < ?3 AND (?7 IS NULL OR e.account IN (?7, 'held:' || ?7) \
             OR EXISTS (SELECT 1 FROM holds h, json_each(h.subjects) s \
             WHERE h.sandbox_id = t.sandbox_id AND s.value = ?7)) ORDER BY e.position LIMIT ?4"
        )
    };
}

pub(super) const ALL: &str = select_entries!(
    "ledger_entries e CROSS JOIN ledger_transactions t ON t.id = e.transaction_id WHERE true"
);
pub(super) const OF_ACCOUNT: &str = select_entries!(
    "ledger_entries e INDEXED BY ledger_entries_account \
     CROSS JOIN ledger_transactions t ON t.id = e.transaction_id WHERE e.account = ?5"
);
/// A sandbox has a handful of transactions: they are read and put in order.
pub(super) const OF_SANDBOX: &str = select_entries!(
    "ledger_transactions t INDEXED BY ledger_transactions_sandbox CROSS JOIN ledger_entries e \
     INDEXED BY ledger_entries_transaction ON e.transaction_id = t.id \
     WHERE t.sandbox_id = ?6 AND (?5 IS NULL OR e.account = ?5)"
);

pub(super) fn after(
    connection: &Connection,
    filter: &EntryFilter,
    after: i64,
    limit: Limit,
) -> Attempt<Vec<Entry>> {
    let sql = match filter {
        EntryFilter { sandbox: Some(_), .. } => OF_SANDBOX,
        EntryFilter { account: Some(_), .. } => OF_ACCOUNT,
        _ => ALL,
    };
    query(sql)
        .bind(after)
        .bind(filter.from.map_or(i64::MIN, micros))
        .bind(filter.until.map_or(i64::MAX, micros))
        .bind(i64::from(limit.get()))
        .bind(&filter.account)
        .bind(filter.sandbox.map(|sandbox| sandbox.to_string()))
        .bind(&filter.subject)
        .all(connection, entry)
}

fn entry(row: &Row<'_>) -> Attempt<Entry> {
    Ok(Entry {
        position: row.get(0)?,
        transaction: row.get(1)?,
        kind: row.get_ref(2)?.as_str()?.parse()?,
        account: row.get(3)?,
        amount: money(row.get(4)?),
        balance: money(row.get(5)?),
        sandbox_id: row.get_ref(6)?.as_str_or_null()?.map(str::parse).transpose()?,
        memo: row.get(7)?,
        time: moment(row.get(8)?)?,
    })
}
