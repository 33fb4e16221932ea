//! One record, read on the caller's own thread.
//!
//! A query through the pool wakes another thread and waits for its answer; on a machine with few processors that costs
//! several times what the read itself does. A row by its key is there in some microseconds and, in WAL mode, waits for
//! nobody. Whatever goes wrong here, the pool is asked instead.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use sandboxer_core::SandboxId;
use sandboxer_core::sandbox::SandboxRecord;

use super::rows::{count, lease};
use crate::model::Stored;

/// A command asks once or twice and is gone: only who asks more often gets a connection for it.
const FIRST: u32 = 8;

#[derive(Debug)]
pub(super) struct Direct {
    path: PathBuf,
    asked: AtomicU32,
    connection: Mutex<Option<Connection>>,
}

impl Direct {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, asked: AtomicU32::new(0), connection: Mutex::new(None) }
    }

    /// What is stored under this id, or nothing of that kind when the pool must be asked.
    pub(super) fn get(&self, id: SandboxId, statement: &str) -> Option<Option<Stored>> {
        self.read(|connection| read(connection, id, statement))
    }

    /// What a short read finds, or nothing when the pool must be asked.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T, Doubt>) -> Option<T> {
        if self.asked.fetch_add(1, Ordering::Relaxed) < FIRST {
            return None;
        }
        // Two at the same moment: the second has the pool.
        let mut slot = match self.connection.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(slot)) => slot.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let connection = match slot.take().map_or_else(|| self.open(), Ok) {
            Ok(connection) => connection,
            Err(error) => {
                tracing::debug!(%error, "the store is not read directly");
                self.asked.store(0, Ordering::Relaxed);
                return None;
            }
        };
        match read(&connection) {
            Ok(found) => {
                *slot = Some(connection);
                Some(found)
            }
            // The connection is in doubt and goes.
            Err(_) => None,
        }
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        // A caller's thread never waits for another process.
        connection.busy_timeout(Duration::ZERO)?;
        Ok(connection)
    }
}

/// Something was not as expected; the pool will say what.
pub(super) struct Doubt;

impl<E: std::error::Error> From<E> for Doubt {
    fn from(_: E) -> Self {
        Self
    }
}

fn read(connection: &Connection, id: SandboxId, statement: &str) -> Result<Option<Stored>, Doubt> {
    let mut statement = connection.prepare_cached(statement)?;
    let found = statement.query_row([id.to_string()], |row| Ok(stored(row))).optional()?;
    found.transpose()
}

fn stored(row: &rusqlite::Row<'_>) -> Result<Stored, Doubt> {
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
        version: count(row.get(5)?).map_err(|_| Doubt)?,
        lease: lease(row.get(6)?, row.get(7)?).map_err(|_| Doubt)?,
    })
}
