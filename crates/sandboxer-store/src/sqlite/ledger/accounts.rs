//! Accounts as they stand.

use rusqlite::{Connection, Row};
use sandboxer_core::ledger::{Account, parse_account};
use sandboxer_core::{Error, ErrorKind, Money};

use super::amount::{self, money};
use crate::sqlite::fault::{Attempt, Fault};
use crate::sqlite::query::query;

pub(super) const GET: &str = "SELECT a.name, a.balance, coalesce(h.balance, 0), a.overdraft FROM accounts a \
    LEFT JOIN accounts h ON h.name = 'held:' || a.name WHERE a.name = ?";
const LIST: &str = "SELECT a.name, a.balance, coalesce(h.balance, 0), a.overdraft FROM accounts a \
    LEFT JOIN accounts h ON h.name = 'held:' || a.name \
    WHERE substr(a.name, 1, instr(a.name, ':')) IN ('org:', 'workspace:', 'key:') ORDER BY a.name";

fn account(row: &Row<'_>) -> Attempt<Account> {
    Ok(Account {
        account: row.get(0)?,
        balance: money(row.get(1)?),
        held: money(row.get(2)?),
        overdraft: money(row.get(3)?),
    })
}

pub(super) fn get(connection: &Connection, name: &str) -> Attempt<Option<Account>> {
    query(GET).bind(name).first(connection, account)
}

pub(super) fn list(connection: &Connection) -> Attempt<Vec<Account>> {
    query(LIST).all(connection, account)
}

pub(super) fn overdraft(connection: &Connection, name: &str, overdraft: Money) -> Attempt<Account> {
    let overdraft = amount::nanos("an overdraft", overdraft)?;
    require_written_out(name)?;
    let sql = "INSERT INTO accounts (name, overdraft) VALUES (?, ?) \
               ON CONFLICT (name) DO UPDATE SET overdraft = excluded.overdraft";
    query(sql).bind(name).bind(overdraft).run(connection)?;
    get(connection, name)?.ok_or_else(|| Fault::internal("an account that was just opened is gone"))
}

/// The account of an organisation, a workspace or a key, in the only form in which it is stored.
pub(super) fn require_written_out(name: &str) -> Attempt<()> {
    let whole = parse_account(name)?;
    if whole == name {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidInput, format!("`{name}` is short for `{whole}`, which is meant here"))
        .into())
}
