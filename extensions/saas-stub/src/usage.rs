//! The provider's usage export: one line for each sandbox that ended, as a provider would bill it.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sandboxer_core::{Money, Result};

use crate::record::Record;

/// The columns of the export.
pub(crate) const HEADER: &str =
    "tag,id,started_at,ended_at,seconds,vcpu,memory_mb,cost,currency,key,reason\n";
/// A longer file is put aside, and what was put aside before it is gone.
const LONGEST: u64 = 4 << 20;

pub(crate) fn path(folder: &Path) -> PathBuf {
    folder.join("usage.csv")
}

/// One line; a sandbox that lives is billed until now and has no end.
pub(crate) fn line(record: &Record, now: Timestamp) -> Result<String> {
    let billed = record.billed.unwrap_or_else(|| record.billed_until(now));
    let cost = match record.cost {
        Some(cost) => cost,
        None => record.cost_until(now)?,
    };
    let ended_at = record.ended_at.map(|at| at.to_string()).unwrap_or_default();
    Ok(format!(
        "{},{},{},{ended_at},{},{},{},{},{},{},{}\n",
        record.tag,
        record.id,
        record.created_at,
        thousandths(billed.as_millis()),
        thousandths(record.vcpu_milli),
        record.memory_mb,
        amount(cost),
        Money::CURRENCY,
        record.key,
        record.reason.as_deref().unwrap_or_default(),
    ))
}

/// Adds a line once. Whoever calls holds the provider's lock. `again` when an earlier end broke off.
pub(crate) fn append(folder: &Path, record: &Record, now: Timestamp, again: bool) -> std::io::Result<bool> {
    let (path, text) = (path(folder), line(record, now).map_err(std::io::Error::other)?);
    if again && has(&path, &record.id)? {
        return Ok(false);
    }
    let aside = path.metadata().is_ok_and(|about| about.len() > LONGEST);
    if aside {
        std::fs::rename(&path, folder.join("usage.old.csv"))?;
    }
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    let text = if file.metadata()?.len() == 0 { format!("{HEADER}{text}") } else { text };
    // In one piece, so that a reader sees whole lines.
    file.write_all(text.as_bytes())?;
    Ok(aside)
}

/// Whether the sandbox of this id has its line; a tag may have had several sandboxes, one after the other.
fn has(path: &Path, id: &str) -> std::io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    for line in BufReader::new(file).lines() {
        if line?.split(',').nth(1) == Some(id) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `1500` as `1.500`.
fn thousandths(number: u64) -> String {
    format!("{}.{:03}", number / 1_000, number % 1_000)
}

/// Without the currency, which has a column of its own.
fn amount(cost: Money) -> String {
    cost.to_string().trim_end_matches(Money::CURRENCY).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_a_spreadsheet_reads_them() {
        assert_eq!(thousandths(61_007), "61.007");
        assert_eq!(amount(Money::from_nanos(1_234_500)), "0.0012345");
        assert_eq!(amount(Money::ZERO), "0.00");
    }
}
