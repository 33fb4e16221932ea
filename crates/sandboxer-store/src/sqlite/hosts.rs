//! Hosts, how they have answered, and what their sandboxes were promised.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Connection, Row};
use sandboxer_core::host::{HostLoad, HostSign, LOCAL};
use sandboxer_core::sandbox::SandboxRecord;
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Host};

use super::fault::Attempt;
use super::query::query;
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

fn record(row: &Row<'_>) -> Attempt<HostRecord> {
    Ok(HostRecord {
        host: serde_json::from_str(row.get_ref(0)?.as_str()?)?,
        health: serde_json::from_str(row.get_ref(1)?.as_str()?)?,
        facts: row.get_ref(2)?.as_str_or_null()?.map(serde_json::from_str).transpose()?,
        version: count(row.get(3)?)?,
    })
}

pub(super) fn put(connection: &Connection, host: &Host) -> Attempt<HostRecord> {
    if find(connection, &host.name)?.is_some() {
        let message = format!("there is a host `{}` already", printable(&host.name));
        return Err(Error::new(ErrorKind::Conflict, message)
            .with_hint(format!("`sandboxer hosts remove {}` first, or choose another name", host.name))
            .with_context("host", &host.name)
            .into());
    }
    let made = HostRecord { version: 1, ..HostRecord::new(host.clone()) };
    write(connection, &made)?;
    Ok(made)
}

fn write(connection: &Connection, record: &HostRecord) -> Attempt<()> {
    query("INSERT OR REPLACE INTO hosts (name, version, doc, health, facts) VALUES (?, ?, ?, ?, ?)")
        .bind(&record.host.name)
        .bind(record.version as i64)
        .bind(serde_json::to_string(&record.host)?)
        .bind(serde_json::to_string(&record.health)?)
        .bind(record.facts.as_ref().map(serde_json::to_string).transpose()?)
        .run(connection)?;
    Ok(())
}

pub(super) fn find(connection: &Connection, name: &str) -> Attempt<Option<HostRecord>> {
    query(select_host!("WHERE name = ?")).bind(name).first(connection, record)
}

pub(super) fn list(connection: &Connection) -> Attempt<Vec<HostRecord>> {
    query(select_host!("ORDER BY name")).all(connection, record)
}

pub(super) fn remove(connection: &Connection, name: &str) -> Attempt<HostRecord> {
    let gone = find(connection, name)?.ok_or_else(|| absent(name))?;
    let id = |row: &Row<'_>| -> Attempt<String> { Ok(row.get(0)?) };
    let sql = "SELECT id FROM sandboxes INDEXED BY sandboxes_living \
               WHERE state <> 'destroyed' AND json_extract(doc, '$.host') = ? ORDER BY id";
    let mut ids = query(sql).bind(name).all(connection, id)?;
    let sql = "SELECT id FROM snapshots WHERE json_extract(doc, '$.host') = ? ORDER BY id";
    ids.extend(query(sql).bind(name).all(connection, id)?);
    if !ids.is_empty() {
        return Err(in_use(name, &ids).into());
    }
    query("DELETE FROM hosts WHERE name = ?").bind(name).run(connection)?;
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
pub(super) fn health(
    connection: &Connection,
    name: &str,
    sign: &HostSign,
    facts: Option<&serde_json::Value>,
    now: Timestamp,
) -> Attempt<HostRecord> {
    let mut record = match find(connection, name)? {
        Some(record) => record,
        None if name == LOCAL => HostRecord::new(Host::local()),
        None => return Err(absent(name).into()),
    };
    record.health = record.health.after(sign, record.host.is_local(), now);
    record.facts = facts.cloned().or(record.facts);
    record.version += 1;
    write(connection, &record)?;
    Ok(record)
}

pub(super) fn loads(connection: &Connection) -> Attempt<BTreeMap<String, HostLoad>> {
    let sql = "SELECT json_extract(doc, '$.host'), count(*), \
               total(json_extract(spec, '$.resources.cpu')), \
               CAST(total(json_extract(spec, '$.resources.memory_mb')) AS INTEGER), \
               CAST(total(json_extract(spec, '$.resources.disk_mb')) AS INTEGER) \
               FROM sandboxes INDEXED BY sandboxes_living WHERE state <> 'destroyed' GROUP BY 1";
    let mut loads = BTreeMap::new();
    query(sql).each(connection, |row| {
        let load = HostLoad {
            sandboxes: u32::try_from(row.get::<_, i64>(1)?).unwrap_or(u32::MAX),
            cpu: row.get(2)?,
            memory_mb: count(row.get(3)?)?,
            disk_mb: count(row.get(4)?)?,
        };
        loads.insert(row.get(0)?, load);
        Ok(())
    })?;
    Ok(loads)
}

/// A sandbox is written only for a host that is there: its removal may have come in between.
pub(super) fn require(connection: &Connection, record: &SandboxRecord) -> Attempt<()> {
    let name = &record.sandbox.host;
    if name == LOCAL || !record.state().is_living() {
        return Ok(());
    }
    if query("SELECT 1 FROM hosts WHERE name = ?").bind(name).any(connection)? {
        return Ok(());
    }
    Err(absent(name).into())
}
