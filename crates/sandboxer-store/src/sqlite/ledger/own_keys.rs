//! Workspaces' own keys at providers.

use rusqlite::{Connection, Row};
use sandboxer_core::ledger::check_name;
use sandboxer_core::{Error, ErrorKind};

use crate::ledger::OwnKey;
use crate::sqlite::fault::{Attempt, Fault};
use crate::sqlite::query::query;
use crate::sqlite::rows::{micros, moment};

const FIND: &str = "SELECT organisation, workspace, extension, secret, fee_basis_points, created_at FROM own_keys \
    WHERE organisation = ? AND workspace = ? AND extension = ?";
/// The name of a secret is a name and not the secret.
const LONGEST_NAME: usize = 256;

fn own_key(row: &Row<'_>) -> Attempt<OwnKey> {
    let fee: i64 = row.get(4)?;
    Ok(OwnKey {
        organisation: row.get(0)?,
        workspace: row.get(1)?,
        extension: row.get(2)?,
        secret: row.get(3)?,
        fee_basis_points: u32::try_from(fee).map_err(|_| Fault::internal(format!("{fee} is not a fee")))?,
        created_at: moment(row.get(5)?)?,
    })
}

pub(super) fn put(connection: &Connection, key: &OwnKey) -> Attempt<()> {
    check_name("an organisation", &key.organisation)?;
    check_name("a workspace", &key.workspace)?;
    check_name("an extension", &key.extension)?;
    if key.secret.is_empty() || key.secret.len() > LONGEST_NAME {
        let message = format!("the name of a secret has 1 to {LONGEST_NAME} bytes");
        return Err(Error::new(ErrorKind::InvalidInput, message).into());
    }
    query(
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
    .run(connection)?;
    Ok(())
}

pub(super) fn find(
    connection: &Connection,
    organisation: &str,
    workspace: &str,
    extension: &str,
) -> Attempt<Option<OwnKey>> {
    query(FIND).bind(organisation).bind(workspace).bind(extension).first(connection, own_key)
}

pub(super) fn list(connection: &Connection) -> Attempt<Vec<OwnKey>> {
    let sql = "SELECT organisation, workspace, extension, secret, fee_basis_points, created_at FROM own_keys \
               ORDER BY organisation, workspace, extension";
    query(sql).all(connection, own_key)
}

pub(super) fn remove(
    connection: &Connection,
    organisation: &str,
    workspace: &str,
    extension: &str,
) -> Attempt<OwnKey> {
    let sql = "DELETE FROM own_keys WHERE organisation = ? AND workspace = ? AND extension = ? \
               RETURNING organisation, workspace, extension, secret, fee_basis_points, created_at";
    let gone = query(sql).bind(organisation).bind(workspace).bind(extension).first(connection, own_key)?;
    gone.ok_or_else(|| {
        let message = format!("{organisation}/{workspace} has no key of its own at {extension}");
        Error::new(ErrorKind::NotFound, message).into()
    })
}
