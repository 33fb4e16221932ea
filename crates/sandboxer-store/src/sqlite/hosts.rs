//! Hosts, how they have answered, and what their sandboxes were promised.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandboxer_core::host::{HostLoad, HostSign, LOCAL};
use sandboxer_core::sandbox::SandboxRecord;
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Host};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection as _, Row as _};

use super::fault::Attempt;
use super::rows::count;
use crate::model::HostRecord;

/// A query for whole hosts: the rest of the statement after the columns that [`record`] reads.
macro_rules! select_host {
    ($rest:literal) => {
        concat!("SELECT doc, health, facts, version FROM hosts ", $rest)
    };
}

/// How many sandboxes a refusal names.
const NAMED: usize = 10;

fn record(row: &SqliteRow) -> Attempt<HostRecord> {
    Ok(HostRecord {
        host: serde_json::from_str(row.try_get(0)?)?,
        health: serde_json::from_str(row.try_get(1)?)?,
        facts: row.try_get::<Option<&str>, _>(2)?.map(serde_json::from_str).transpose()?,
        version: count(row.try_get(3)?)?,
    })
}

pub(super) async fn put(connection: &mut SqliteConnection, host: &Host) -> Attempt<HostRecord> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    if find(&mut tx, &host.name).await?.is_some() {
        let message = format!("there is a host `{}` already", printable(&host.name));
        return Err(Error::new(ErrorKind::Conflict, message)
            .with_hint(format!("`sandboxer hosts remove {}` first, or choose another name", host.name))
            .with_context("host", &host.name)
            .into());
    }
    let made = HostRecord { version: 1, ..HostRecord::new(host.clone()) };
    write(&mut tx, &made).await?;
    tx.commit().await?;
    Ok(made)
}

async fn write(connection: &mut SqliteConnection, record: &HostRecord) -> Attempt<()> {
    sqlx::query("INSERT OR REPLACE INTO hosts (name, version, doc, health, facts) VALUES (?, ?, ?, ?, ?)")
        .bind(&record.host.name)
        .bind(record.version as i64)
        .bind(serde_json::to_string(&record.host)?)
        .bind(serde_json::to_string(&record.health)?)
        .bind(record.facts.as_ref().map(serde_json::to_string).transpose()?)
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) async fn find(connection: &mut SqliteConnection, name: &str) -> Attempt<Option<HostRecord>> {
    let row = sqlx::query(select_host!("WHERE name = ?")).bind(name).fetch_optional(connection).await?;
    row.as_ref().map(record).transpose()
}

pub(super) async fn list(connection: &mut SqliteConnection) -> Attempt<Vec<HostRecord>> {
    sqlx::query(select_host!("ORDER BY name")).fetch_all(connection).await?.iter().map(record).collect()
}

pub(super) async fn remove(connection: &mut SqliteConnection, name: &str) -> Attempt<HostRecord> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let gone = find(&mut tx, name).await?.ok_or_else(|| absent(name))?;
    let sql = "SELECT id FROM sandboxes INDEXED BY sandboxes_living \
               WHERE state <> 'destroyed' AND json_extract(doc, '$.host') = ? ORDER BY id";
    let mut rows = sqlx::query(sql).bind(name).fetch_all(&mut *tx).await?;
    let sql = "SELECT id FROM snapshots WHERE json_extract(doc, '$.host') = ? ORDER BY id";
    rows.extend(sqlx::query(sql).bind(name).fetch_all(&mut *tx).await?);
    if !rows.is_empty() {
        let ids: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        return Err(in_use(name, &ids).into());
    }
    sqlx::query("DELETE FROM hosts WHERE name = ?").bind(name).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(gone)
}

fn absent(name: &str) -> Error {
    Error::new(ErrorKind::HostNotFound, format!("there is no host `{}`", printable(name)))
        .with_hint("`sandboxer hosts list` shows what is there")
}

fn in_use(name: &str, ids: &[String]) -> Error {
    let named = ids.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = ids.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Error::new(ErrorKind::Conflict, format!("host `{name}` still has {named}{more}"))
        .with_hint("destroy and delete them first: nobody else could take them down")
        .with_context("host", name)
        .with_context("in_use_by", ids.join(","))
}

/// The engine's own machine gets its row with the first sign.
pub(super) async fn health(
    connection: &mut SqliteConnection,
    name: &str,
    sign: &HostSign,
    facts: Option<&serde_json::Value>,
    now: Timestamp,
) -> Attempt<HostRecord> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let mut record = match find(&mut tx, name).await? {
        Some(record) => record,
        None if name == LOCAL => HostRecord::new(Host::local()),
        None => return Err(absent(name).into()),
    };
    record.health = record.health.after(sign, record.host.is_local(), now);
    record.facts = facts.cloned().or(record.facts);
    record.version += 1;
    write(&mut tx, &record).await?;
    tx.commit().await?;
    Ok(record)
}

pub(super) async fn loads(connection: &mut SqliteConnection) -> Attempt<BTreeMap<String, HostLoad>> {
    let sql = "SELECT json_extract(doc, '$.host'), count(*), \
               total(json_extract(spec, '$.resources.cpu')), \
               CAST(total(json_extract(spec, '$.resources.memory_mb')) AS INTEGER), \
               CAST(total(json_extract(spec, '$.resources.disk_mb')) AS INTEGER) \
               FROM sandboxes INDEXED BY sandboxes_living WHERE state <> 'destroyed' GROUP BY 1";
    let rows = sqlx::query(sql).fetch_all(connection).await?;
    rows.iter()
        .map(|row| {
            let load = HostLoad {
                sandboxes: u32::try_from(row.try_get::<i64, _>(1)?).unwrap_or(u32::MAX),
                cpu: row.try_get(2)?,
                memory_mb: count(row.try_get(3)?)?,
                disk_mb: count(row.try_get(4)?)?,
            };
            Ok((row.try_get(0)?, load))
        })
        .collect()
}

/// A sandbox is written only for a host that is there: its removal may have come in between.
pub(super) async fn require(connection: &mut SqliteConnection, record: &SandboxRecord) -> Attempt<()> {
    let name = &record.sandbox.host;
    if name == LOCAL || !record.state().is_living() {
        return Ok(());
    }
    let found =
        sqlx::query("SELECT 1 FROM hosts WHERE name = ?").bind(name).fetch_optional(connection).await?;
    found.map(drop).ok_or_else(|| absent(name).into())
}
