//! Workspaces' own keys at providers.

use jiff::Timestamp;
use rusqlite::OptionalExtension as _;
use sandboxer_core::ledger::check_name;
use sandboxer_core::{Error, ErrorKind};
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::ledger::OwnKey;
use crate::sqlite::direct::Doubt;
use crate::sqlite::fault::{Attempt, Fault};
use crate::sqlite::rows::{micros, moment};

const FIND: &str = "SELECT organisation, workspace, extension, secret, fee_basis_points, created_at FROM own_keys \
    WHERE organisation = ? AND workspace = ? AND extension = ?";
/// The name of a secret is a name and not the secret.
const LONGEST_NAME: usize = 256;

fn own_key(row: &SqliteRow) -> Attempt<OwnKey> {
    let fee: i64 = row.try_get(4)?;
    Ok(OwnKey {
        organisation: row.try_get(0)?,
        workspace: row.try_get(1)?,
        extension: row.try_get(2)?,
        secret: row.try_get(3)?,
        fee_basis_points: u32::try_from(fee).map_err(|_| Fault::internal(format!("{fee} is not a fee")))?,
        created_at: moment(row.try_get(5)?)?,
    })
}

pub(super) async fn put(connection: &mut SqliteConnection, key: &OwnKey) -> Attempt<()> {
    check_name("an organisation", &key.organisation)?;
    check_name("a workspace", &key.workspace)?;
    check_name("an extension", &key.extension)?;
    if key.secret.is_empty() || key.secret.len() > LONGEST_NAME {
        let message = format!("the name of a secret has 1 to {LONGEST_NAME} bytes");
        return Err(Error::new(ErrorKind::InvalidInput, message).into());
    }
    sqlx::query(
        "INSERT INTO own_keys (organisation, workspace, extension, secret, fee_basis_points, created_at) \
         VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (organisation, workspace, extension) DO UPDATE SET \
         secret = excluded.secret, fee_basis_points = excluded.fee_basis_points, created_at = excluded.created_at",
    )
    .bind(&key.organisation)
    .bind(&key.workspace)
    .bind(&key.extension)
    .bind(&key.secret)
    .bind(i64::from(key.fee_basis_points))
    .bind(micros(key.created_at))
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn find(
    connection: &mut SqliteConnection,
    organisation: &str,
    workspace: &str,
    extension: &str,
) -> Attempt<Option<OwnKey>> {
    let query = sqlx::query(FIND).bind(organisation).bind(workspace).bind(extension);
    query.fetch_optional(connection).await?.as_ref().map(own_key).transpose()
}

/// The same on the caller's own thread: every create asks.
pub(super) fn direct(
    connection: &rusqlite::Connection,
    organisation: &str,
    workspace: &str,
    extension: &str,
) -> Result<Option<OwnKey>, Doubt> {
    let found = connection.prepare_cached(FIND)?.query_row([organisation, workspace, extension], |row| {
        let micros: i64 = row.get(5)?;
        let key = OwnKey {
            organisation: row.get(0)?,
            workspace: row.get(1)?,
            extension: row.get(2)?,
            secret: row.get(3)?,
            fee_basis_points: row.get(4)?,
            created_at: Timestamp::UNIX_EPOCH,
        };
        Ok((key, micros))
    });
    let Some((key, micros)) = found.optional()? else { return Ok(None) };
    Ok(Some(OwnKey { created_at: Timestamp::from_microsecond(micros)?, ..key }))
}

pub(super) async fn list(connection: &mut SqliteConnection) -> Attempt<Vec<OwnKey>> {
    let sql = "SELECT organisation, workspace, extension, secret, fee_basis_points, created_at FROM own_keys \
               ORDER BY organisation, workspace, extension";
    sqlx::query(sql).fetch_all(connection).await?.iter().map(own_key).collect()
}

pub(super) async fn remove(
    connection: &mut SqliteConnection,
    organisation: &str,
    workspace: &str,
    extension: &str,
) -> Attempt<OwnKey> {
    let sql = "DELETE FROM own_keys WHERE organisation = ? AND workspace = ? AND extension = ? \
               RETURNING organisation, workspace, extension, secret, fee_basis_points, created_at";
    // All rows: a statement that is left in the middle has not done its work.
    let rows =
        sqlx::query(sql).bind(organisation).bind(workspace).bind(extension).fetch_all(connection).await?;
    let row = rows.first().ok_or_else(|| {
        let message = format!("{organisation}/{workspace} has no key of its own at {extension}");
        Error::new(ErrorKind::NotFound, message)
    })?;
    own_key(row)
}
