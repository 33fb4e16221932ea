//! Entries, oldest first.

use sandboxer_core::ledger::Entry;
use sandboxer_core::page::Limit;
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::amount::money;
use crate::ledger::EntryFilter;
use crate::sqlite::fault::Attempt;
use crate::sqlite::rows::{micros, moment};

/// The columns that [`entry`] reads; CROSS JOIN fixes the order in which the tables are walked.
macro_rules! select_entries {
    ($rest:literal) => {
        concat!(
            "SELECT e.position, e.transaction_id, t.kind, e.account, e.amount, e.balance, t.sandbox_id, t.memo, e.time \
             FROM ",
            $rest,
            " AND e.position > $1 AND e.time >= $2 AND e.time < $3 AND ($7 IS NULL OR e.account IN ($7, 'held:' || $7) \
             OR EXISTS (SELECT 1 FROM holds h, json_each(h.subjects) s \
             WHERE h.sandbox_id = t.sandbox_id AND s.value = $7)) ORDER BY e.position LIMIT $4"
        )
    };
}

pub(super) const ALL: &str = select_entries!(
    "ledger_entries e CROSS JOIN ledger_transactions t ON t.id = e.transaction_id WHERE true"
);
pub(super) const OF_ACCOUNT: &str = select_entries!(
    "ledger_entries e INDEXED BY ledger_entries_account \
     CROSS JOIN ledger_transactions t ON t.id = e.transaction_id WHERE e.account = $5"
);
/// A sandbox has a handful of transactions: they are read and put in order.
pub(super) const OF_SANDBOX: &str = select_entries!(
    "ledger_transactions t INDEXED BY ledger_transactions_sandbox CROSS JOIN ledger_entries e \
     INDEXED BY ledger_entries_transaction ON e.transaction_id = t.id \
     WHERE t.sandbox_id = $6 AND ($5 IS NULL OR e.account = $5)"
);

pub(super) async fn after(
    connection: &mut SqliteConnection,
    filter: &EntryFilter,
    after: i64,
    limit: Limit,
) -> Attempt<Vec<Entry>> {
    let sql = match filter {
        EntryFilter { sandbox: Some(_), .. } => OF_SANDBOX,
        EntryFilter { account: Some(_), .. } => OF_ACCOUNT,
        _ => ALL,
    };
    let rows = sqlx::query(sql)
        .bind(after)
        .bind(filter.from.map_or(i64::MIN, micros))
        .bind(filter.until.map_or(i64::MAX, micros))
        .bind(i64::from(limit.get()))
        .bind(&filter.account)
        .bind(filter.sandbox.map(|sandbox| sandbox.to_string()))
        .bind(&filter.subject)
        .fetch_all(connection)
        .await?;
    rows.iter().map(entry).collect()
}

fn entry(row: &SqliteRow) -> Attempt<Entry> {
    Ok(Entry {
        position: row.try_get(0)?,
        transaction: row.try_get(1)?,
        kind: row.try_get::<&str, _>(2)?.parse()?,
        account: row.try_get(3)?,
        amount: money(row.try_get(4)?),
        balance: money(row.try_get(5)?),
        sandbox_id: row.try_get::<Option<&str>, _>(6)?.map(str::parse).transpose()?,
        memo: row.try_get(7)?,
        time: moment(row.try_get(8)?)?,
    })
}
