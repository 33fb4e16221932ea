//! Adds up everything, on one view of the books.

use rusqlite::Connection;

use super::amount::money;
use crate::ledger::Audit;
use crate::sqlite::fault::Attempt;
use crate::sqlite::query::query;
use crate::sqlite::rows::count;

/// A finding in words.
type Say = fn(&str, i64, i64) -> String;

/// What must not be there, and how it is said. Each query gives a name and two numbers; a hundred of a kind are enough
/// to know.
const RULES: [(&str, Say); 11] = [
    (
        "SELECT t.id, coalesce(sum(e.amount), 0), count(e.position) FROM ledger_transactions t \
         LEFT JOIN ledger_entries e ON e.transaction_id = t.id GROUP BY t.id \
         HAVING count(e.position) = 0 OR sum(e.amount) <> 0 LIMIT 100",
        |name, sum, entries| match entries {
            0 => format!("the transaction {name} has no entries"),
            _ => format!("the entries of the transaction {name} sum to {} and not to zero", money(sum)),
        },
    ),
    (
        "SELECT e.transaction_id, e.position, 0 FROM ledger_entries e \
         LEFT JOIN ledger_transactions t ON t.id = e.transaction_id WHERE t.id IS NULL LIMIT 100",
        |name, position, _| {
            format!("the entry {position} belongs to the transaction {name}, which is not there")
        },
    ),
    (
        "SELECT account, position, balance FROM (SELECT account, position, balance, amount, \
         lag(balance, 1, 0) OVER (PARTITION BY account ORDER BY position) AS before FROM ledger_entries) \
         WHERE before + amount <> balance LIMIT 100",
        |name, position, balance| {
            format!(
                "the entry {position} of {name} says {} and does not follow from the one before",
                money(balance)
            )
        },
    ),
    (
        "SELECT a.name, a.balance, coalesce(e.sum, 0) FROM accounts a LEFT JOIN \
         (SELECT account, sum(amount) AS sum FROM ledger_entries GROUP BY account) e ON e.account = a.name \
         WHERE a.balance <> coalesce(e.sum, 0) LIMIT 100",
        |name, balance, sum| {
            format!("the account {name} has {}, and its entries sum to {}", money(balance), money(sum))
        },
    ),
    (
        "SELECT e.account, count(*), 0 FROM ledger_entries e LEFT JOIN accounts a ON a.name = e.account \
         WHERE a.name IS NULL GROUP BY e.account LIMIT 100",
        |name, entries, _| format!("{entries} entries belong to the account {name}, which is not there"),
    ),
    (
        "SELECT name, sum(balance), sum(held) FROM (\
         SELECT substr(name, 6) AS name, balance, 0 AS held FROM accounts WHERE name LIKE 'held:%' \
         UNION ALL SELECT account, 0, amount FROM holds WHERE settled_at IS NULL) \
         GROUP BY name HAVING sum(balance) <> sum(held) LIMIT 100",
        |name, balance, held| {
            let (balance, held) = (money(balance), money(held));
            format!("held:{name} has {balance}, and the open holds of {name} sum to {held}")
        },
    ),
    (
        "SELECT sandbox_id, amount, 0 FROM holds WHERE settled_at IS NOT NULL AND amount <> 0 LIMIT 100",
        |name, amount, _| format!("the hold of {name} is settled, and {} are left in it", money(amount)),
    ),
    (
        "SELECT h.sandbox_id, h.amount, s.id IS NOT NULL FROM holds h LEFT JOIN sandboxes s ON s.id = h.sandbox_id \
         WHERE h.settled_at IS NULL AND h.amount <> 0 AND coalesce(s.state, 'destroyed') = 'destroyed' LIMIT 100",
        |name, amount, is_there| match is_there {
            0 => format!("{} are held for {name}, which is not there", money(amount)),
            _ => format!("{} are held for {name}, which is destroyed", money(amount)),
        },
    ),
    (
        "SELECT sandbox_id || ' ' || meter, count(*), 0 FROM meters WHERE ended_at IS NULL \
         GROUP BY sandbox_id, meter HAVING count(*) > 1 LIMIT 100",
        |name, running, _| format!("{running} intervals of {name} run at the same time"),
    ),
    ("SELECT subject, day, used FROM spend WHERE used < 0 LIMIT 100", |name, day, used| {
        format!("{name} has spent {} on day {day} since 1970", money(used))
    }),
    (
        // What left the payer's account for a sandbox and did not come back is held or was charged.
        "SELECT subject, sum(counted), sum(moved) FROM (\
         SELECT subject, used AS counted, 0 AS moved FROM spend \
         UNION ALL SELECT s.value, 0, -e.amount FROM holds h, json_each(h.subjects) s \
         JOIN ledger_transactions t ON t.sandbox_id = h.sandbox_id \
         JOIN ledger_entries e ON e.transaction_id = t.id AND e.account = h.account) \
         GROUP BY subject HAVING sum(counted) <> sum(moved) LIMIT 100",
        |name, counted, moved| {
            let (counted, moved) = (money(counted), money(moved));
            format!("the budgets of {name} count {counted}, and its sandboxes hold and cost {moved}")
        },
    ),
];

pub(super) fn audit(connection: &Connection) -> Attempt<Audit> {
    // One view of everything, while others write on.
    let view = connection.unchecked_transaction()?;
    let counts = "SELECT (SELECT count(*) FROM ledger_transactions), (SELECT count(*) FROM ledger_entries)";
    let (transactions, entries) =
        query(counts).one(&view, |row| Ok((count(row.get(0)?)?, count(row.get(1)?)?)))?;
    let mut wrong = Vec::new();
    for (sql, say) in RULES {
        query(sql).each(&view, |row| {
            wrong.push(say(row.get_ref(0)?.as_str()?, row.get(1)?, row.get(2)?));
            Ok(())
        })?;
    }
    Ok(Audit { transactions, entries, wrong })
}
