//! Accounts as they stand.

use rusqlite::OptionalExtension as _;
use sandboxer_core::ledger::{Account, parse_account};
use sandboxer_core::{Error, ErrorKind, Money};
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::amount::{self, money};
use crate::sqlite::direct::Doubt;
use crate::sqlite::fault::{Attempt, Fault};

pub(super) const GET: &str = "SELECT a.name, a.balance, coalesce(h.balance, 0), a.overdraft FROM accounts a \
    LEFT JOIN accounts h ON h.name = 'held:' || a.name WHERE a.name = ?";
const LIST: &str = "SELECT a.name, a.balance, coalesce(h.balance, 0), a.overdraft FROM accounts a \
    LEFT JOIN accounts h ON h.name = 'held:' || a.name \
    WHERE substr(a.name, 1, instr(a.name, ':')) IN ('org:', 'workspace:', 'key:') ORDER BY a.name";

fn account(row: &SqliteRow) -> Attempt<Account> {
    Ok(Account {
        account: row.try_get(0)?,
        balance: money(row.try_get(1)?),
        held: money(row.try_get(2)?),
        overdraft: money(row.try_get(3)?),
    })
}

pub(super) async fn get(connection: &mut SqliteConnection, name: &str) -> Attempt<Option<Account>> {
    let row = sqlx::query(GET).bind(name).fetch_optional(connection).await?;
    row.as_ref().map(account).transpose()
}

/// The same on the caller's own thread.
pub(super) fn direct(connection: &rusqlite::Connection, name: &str) -> Result<Option<Account>, Doubt> {
    let found = connection.prepare_cached(GET)?.query_row([name], |row| {
        Ok(Account {
            account: row.get(0)?,
            balance: money(row.get(1)?),
            held: money(row.get(2)?),
            overdraft: money(row.get(3)?),
        })
    });
    Ok(found.optional()?)
}

pub(super) async fn list(connection: &mut SqliteConnection) -> Attempt<Vec<Account>> {
    sqlx::query(LIST).fetch_all(connection).await?.iter().map(account).collect()
}

pub(super) async fn overdraft(
    connection: &mut SqliteConnection,
    name: &str,
    overdraft: Money,
) -> Attempt<Account> {
    let overdraft = amount::nanos("an overdraft", overdraft)?;
    require_written_out(name)?;
    let sql = "INSERT INTO accounts (name, overdraft) VALUES (?, ?) \
               ON CONFLICT (name) DO UPDATE SET overdraft = excluded.overdraft";
    sqlx::query(sql).bind(name).bind(overdraft).execute(&mut *connection).await?;
    get(connection, name).await?.ok_or_else(|| Fault::internal("an account that was just opened is gone"))
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
