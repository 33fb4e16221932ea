//! API keys.

use jiff::Timestamp;
use rusqlite::{Connection, Row};
use sandboxer_core::{Error, ErrorKind, KeyId};

use super::fault::Attempt;
use super::query::query;
use super::rows::{micros, moment};
use crate::model::KeyRecord;

/// A query for whole keys: the rest of the statement after the columns that [`record`] reads.
macro_rules! select_key {
    ($rest:literal) => {
        concat!("SELECT key_id, name, actor, hash, created_at, expires_at, revoked_at, organisation, workspace FROM api_keys ", $rest)
    };
}

fn record(row: &Row<'_>) -> Attempt<KeyRecord> {
    Ok(KeyRecord {
        key_id: row.get_ref(0)?.as_str()?.parse()?,
        name: row.get(1)?,
        actor: row.get_ref(2)?.as_str()?.parse()?,
        hash: row.get(3)?,
        created_at: moment(row.get(4)?)?,
        expires_at: row.get::<_, Option<i64>>(5)?.map(moment).transpose()?,
        revoked_at: row.get::<_, Option<i64>>(6)?.map(moment).transpose()?,
        organisation: row.get(7)?,
        workspace: row.get(8)?,
    })
}

pub(super) fn insert(connection: &Connection, key: &KeyRecord) -> Attempt<()> {
    query(
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
    .run(connection)?;
    Ok(())
}

pub(super) fn list(connection: &Connection) -> Attempt<Vec<KeyRecord>> {
    query(select_key!("ORDER BY key_id DESC")).all(connection, record)
}

pub(super) fn find(connection: &Connection, hash: &str) -> Attempt<Option<KeyRecord>> {
    query(select_key!("WHERE hash = ?")).bind(hash).first(connection, record)
}

pub(super) fn revoke(connection: &Connection, id: KeyId, now: Timestamp) -> Attempt<KeyRecord> {
    let text = id.to_string();
    query("UPDATE api_keys SET revoked_at = ? WHERE key_id = ? AND revoked_at IS NULL")
        .bind(micros(now))
        .bind(&text)
        .run(connection)?;
    let found = query(select_key!("WHERE key_id = ?")).bind(&text).first(connection, record)?;
    found.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("there is no API key `{text}`"))
            .with_hint("`sandboxer keys list` shows what is there")
            .into()
    })
}
