//! API keys.

use jiff::Timestamp;
use sandboxer_core::{Error, ErrorKind, KeyId};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection as _, Row as _};

use super::fault::Attempt;
use super::rows::{micros, moment};
use crate::model::KeyRecord;

/// A query for whole keys: the rest of the statement after the columns that [`record`] reads.
macro_rules! select_key {
    ($rest:literal) => {
        concat!("SELECT key_id, name, actor, hash, created_at, expires_at, revoked_at, organisation, workspace FROM api_keys ", $rest)
    };
}

fn record(row: &SqliteRow) -> Attempt<KeyRecord> {
    Ok(KeyRecord {
        key_id: row.try_get::<&str, _>(0)?.parse()?,
        name: row.try_get(1)?,
        actor: row.try_get::<&str, _>(2)?.parse()?,
        hash: row.try_get(3)?,
        created_at: moment(row.try_get(4)?)?,
        expires_at: row.try_get::<Option<i64>, _>(5)?.map(moment).transpose()?,
        revoked_at: row.try_get::<Option<i64>, _>(6)?.map(moment).transpose()?,
        organisation: row.try_get(7)?,
        workspace: row.try_get(8)?,
    })
}

pub(super) async fn insert(connection: &mut SqliteConnection, key: &KeyRecord) -> Attempt<()> {
    sqlx::query(
        "INSERT INTO api_keys (key_id, name, actor, hash, created_at, expires_at, revoked_at, organisation, workspace) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(key.key_id.to_string())
    .bind(&key.name)
    .bind(key.actor.as_str())
    .bind(&key.hash)
    .bind(micros(key.created_at))
    .bind(key.expires_at.map(micros))
    .bind(key.revoked_at.map(micros))
    .bind(&key.organisation)
    .bind(&key.workspace)
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn list(connection: &mut SqliteConnection) -> Attempt<Vec<KeyRecord>> {
    sqlx::query(select_key!("ORDER BY key_id DESC")).fetch_all(connection).await?.iter().map(record).collect()
}

pub(super) async fn find(connection: &mut SqliteConnection, hash: &str) -> Attempt<Option<KeyRecord>> {
    let row = sqlx::query(select_key!("WHERE hash = ?")).bind(hash).fetch_optional(connection).await?;
    row.as_ref().map(record).transpose()
}

pub(super) async fn revoke(
    connection: &mut SqliteConnection,
    id: KeyId,
    now: Timestamp,
) -> Attempt<KeyRecord> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let text = id.to_string();
    sqlx::query("UPDATE api_keys SET revoked_at = ? WHERE key_id = ? AND revoked_at IS NULL")
        .bind(micros(now))
        .bind(&text)
        .execute(&mut *tx)
        .await?;
    let row = sqlx::query(select_key!("WHERE key_id = ?")).bind(&text).fetch_optional(&mut *tx).await?;
    let row = row.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("there is no API key `{text}`"))
            .with_hint("`sandboxer keys list` shows what is there")
    })?;
    let key = record(&row)?;
    tx.commit().await?;
    Ok(key)
}
