//! Between rows and values.

use jiff::Timestamp;
use rusqlite::Row;
use sandboxer_core::sandbox::SandboxRecord;

use super::fault::{Attempt, Fault};
use crate::model::{Lease, Stored};

/// A query for whole records: the rest of the statement after the columns that [`stored`] reads.
macro_rules! select_stored {
    ($rest:literal) => {
        concat!(
            "SELECT doc, spec, handle, reuse_key, owner_key, version, lease_owner, lease_until, bill FROM sandboxes ",
            $rest
        )
    };
}
pub(super) use select_stored;

pub(super) fn stored(row: &Row<'_>) -> Attempt<Stored> {
    let handle = row.get_ref(2)?.as_str_or_null()?.map(serde_json::from_str).transpose()?;
    Ok(Stored {
        record: SandboxRecord {
            sandbox: serde_json::from_str(row.get_ref(0)?.as_str()?)?,
            spec: serde_json::from_str(row.get_ref(1)?.as_str()?)?,
            handle,
            reuse_key: row.get(3)?,
            owner_key: row.get(4)?,
            bill: row.get_ref(8)?.as_str_or_null()?.map(serde_json::from_str).transpose()?,
        },
        version: count(row.get(5)?)?,
        lease: lease(row.get(6)?, row.get(7)?)?,
    })
}

pub(super) fn lease(owner: Option<String>, until: Option<i64>) -> Attempt<Option<Lease>> {
    let (Some(owner), Some(until)) = (owner, until) else { return Ok(None) };
    Ok(Some(Lease { owner, until: moment(until)? }))
}

/// A moment as it is stored.
pub(super) fn micros(moment: Timestamp) -> i64 {
    moment.as_microsecond()
}

/// A stored moment.
pub(super) fn moment(micros: i64) -> Attempt<Timestamp> {
    Timestamp::from_microsecond(micros).map_err(|_| Fault::internal(format!("{micros} is not a moment")))
}

/// A number that is never negative.
pub(super) fn count(value: i64) -> Attempt<u64> {
    u64::try_from(value).map_err(|_| Fault::internal(format!("{value} is not a count")))
}
