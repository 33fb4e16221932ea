//! A store with many sandboxes in it: real rows of real, ended sandboxes, copied under new ids.
//!
//! Columns are read from the store itself, so that a new one does not break this; only the three tables and the form
//! of ids are known here.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rusqlite::Connection;

/// As ids are written: Crockford's alphabet, 26 characters for 128 bits.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const ID_CHARACTERS: usize = 26;
/// The milliseconds of a UUIDv7 are its first 48 bits.
const TIME_SHIFT: u32 = 80;
/// Between two of the copied sandboxes; all stay younger than anything that is pruned by age.
const SPACING_MS: u128 = 1_000;

/// Copies the ended sandboxes of a store until it has `count`, and gives their ids.
pub(crate) fn fill(home: &Path, count: usize) -> Result<Vec<String>> {
    let file = database(home)?;
    let mut connection = Connection::open(&file).context("cannot open the store")?;
    let ids = copy(&mut connection, count).context("cannot fill the store")?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(ids)
}

/// The file that is a database by its first bytes.
fn database(home: &Path) -> Result<PathBuf> {
    let files = std::fs::read_dir(home)?.flatten().map(|entry| entry.path()).filter(|path| path.is_file());
    let is_database =
        |path: &PathBuf| std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"SQLite format 3\0"));
    files.into_iter().find(is_database).with_context(|| format!("there is no store in {}", home.display()))
}

fn copy(connection: &mut Connection, count: usize) -> Result<Vec<String>> {
    let ended = "SELECT id FROM sandboxes WHERE state = 'destroyed' ORDER BY id";
    let models: Vec<String> =
        connection.prepare(ended)?.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    ensure!(!models.is_empty(), "no ended sandbox to copy");
    let first = models.first().and_then(|id| decode(id)).context("an id of an unknown form")?;
    let ids: Vec<String> =
        (1..=count as u128).rev().map(|n| encode(first - ((n * SPACING_MS) << TIME_SHIFT))).collect();

    let tx = connection.transaction()?;
    tx.execute_batch(
        "CREATE TEMP TABLE fresh (n INTEGER PRIMARY KEY, old TEXT NOT NULL, new TEXT NOT NULL)",
    )?;
    tx.execute(
        "INSERT INTO fresh SELECT ids.key, models.value, ids.value FROM json_each(?) AS ids \
         JOIN json_each(?) AS models ON models.key = ids.key % json_array_length(?)",
        [serde_json::to_string(&ids)?, serde_json::to_string(&models)?, serde_json::to_string(&models)?],
    )?;
    for (table, owner, left_out) in
        [("sandboxes", "id", ""), ("sandbox_labels", "id", ""), ("events", "subject", "position")]
    {
        copy_rows(&tx, table, owner, left_out).with_context(|| format!("table {table}"))?;
    }
    tx.execute_batch("DROP TABLE fresh")?;
    tx.commit()?;
    Ok(ids)
}

/// Every row of the models once for each copy, with the new id wherever the old one was written.
fn copy_rows(connection: &Connection, table: &str, owner: &str, left_out: &str) -> Result<()> {
    let columns: Vec<(String, String)> = connection
        .prepare("SELECT name, type FROM pragma_table_info(?) WHERE name <> ?")?
        .query_map([table, left_out], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    // An event's id is the new sandbox's with the event's number at the end: unique, and of the right form.
    let event_id = "('evt_' || substr(fresh.new, 5, 24) || printf('%02d', t.sequence % 100))";
    let value = |(name, kind): &(String, String)| match (table, name.as_str(), kind.as_str()) {
        ("events", "id", _) => event_id.to_owned(),
        ("events", "json", _) => format!("replace(replace(t.json, fresh.old, fresh.new), t.id, {event_id})"),
        (_, _, "TEXT") => format!("replace(t.{name}, fresh.old, fresh.new)"),
        _ => format!("t.{name}"),
    };
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let values: Vec<String> = columns.iter().map(value).collect();
    let sql = format!(
        "INSERT INTO {table} ({}) SELECT {} FROM fresh JOIN {table} AS t ON t.{owner} = fresh.old ORDER BY fresh.n",
        names.join(", "),
        values.join(", "),
    );
    // Made of column names that the store itself gave, and of nothing else.
    connection.execute(&sql, [])?;
    Ok(())
}

fn encode(value: u128) -> String {
    let digit = |place: usize| char::from(ALPHABET[(value >> (place * 5)) as usize & 31]);
    format!("sbx_{}", (0..ID_CHARACTERS).rev().map(digit).collect::<String>())
}

fn decode(id: &str) -> Option<u128> {
    let text = id.strip_prefix("sbx_").filter(|text| text.len() == ID_CHARACTERS)?;
    text.bytes().try_fold(0_u128, |value, byte| {
        let digit = ALPHABET.iter().position(|&known| known == byte)?;
        Some((value << 5) | digit as u128)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_as_they_are_read() {
        let id = "sbx_01jx3v8q4zc9hm7n2w5t6r0ksd";
        assert_eq!(encode(decode(id).unwrap()), id);
        assert!(decode("sbx_short").is_none());
        assert!(decode("exe_01jx3v8q4zc9hm7n2w5t6r0ksd").is_none());
    }
}
