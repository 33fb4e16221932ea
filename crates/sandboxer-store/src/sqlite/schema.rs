//! Opening a file: making it, recognising it, and bringing its schema up to date.
//!
//! An up-to-date file costs one query. Everything else happens behind a lock file, because turning on WAL mode fails at
//! once, without waiting, while another process looks at the file.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::ErrorKind as IoKind;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use sandboxer_core::{Error, ErrorKind, Retry};
use tokio::time::Instant;

use super::connection::{self, PATIENCE};
use super::fault::{Attempt, Fault, from_io, is_absent, is_busy};
use super::query::query;

/// In order; the version of a file is the number of those that it has had. Never change one that was released.
const MIGRATIONS: [&str; 8] = [
    include_str!("../../migrations/sqlite/0001_sandboxes_events_outbox_keys.sql"),
    include_str!("../../migrations/sqlite/0002_hosts.sql"),
    include_str!("../../migrations/sqlite/0003_snapshots.sql"),
    include_str!("../../migrations/sqlite/0004_ledger.sql"),
    include_str!("../../migrations/sqlite/0005_route_memory.sql"),
    include_str!("../../migrations/sqlite/0006_webhooks.sql"),
    include_str!("../../migrations/sqlite/0007_hubs.sql"),
    include_str!("../../migrations/sqlite/0008_free_holds.sql"),
];
const CURRENT: i64 = MIGRATIONS.len() as i64;
/// `SBOX`: tells our files from other SQLite files.
const APPLICATION_ID: i64 = 0x5342_4f58;
/// Between two tries for a lock.
const PAUSE: Duration = Duration::from_millis(2);

/// A connection to a file with the current schema.
pub(super) async fn open(path: &Path) -> Attempt<Connection> {
    match connection::open(path) {
        Ok(connection) => {
            // Anything else may be another process at work on it, which only the lock can tell.
            if marks(&connection)? == (CURRENT, APPLICATION_ID) {
                return Ok(connection);
            }
        }
        Err(Fault::Sql(error)) if is_absent(&error) => {}
        Err(fault) => return Err(fault),
    }
    initialise(path).await
}

/// The store answers.
pub(super) fn ping(connection: &Connection) -> Attempt<()> {
    query("SELECT 1 FROM sqlite_schema LIMIT 1").one(connection, |_| Ok(()))
}

/// The version of the schema and the mark of the program that made it.
fn marks(connection: &Connection) -> Attempt<(i64, i64)> {
    query("SELECT user_version, application_id FROM pragma_user_version, pragma_application_id")
        .one(connection, |row| Ok((row.get(0)?, row.get(1)?)))
}

/// The file's version, if it is one of ours and not newer than we are. For whoever holds the lock: nobody else may
/// change the file between the two queries.
fn standing(connection: &Connection, path: &Path) -> Attempt<i64> {
    let (version, application) = marks(connection)?;
    let refuse = |message: String, hint: &str| {
        Fault::Own(
            Error::new(ErrorKind::StoreFailed, message)
                .with_retry(Retry::Permanent)
                .with_hint(hint)
                .with_context("path", path.display().to_string()),
        )
    };
    if application == APPLICATION_ID && version > CURRENT {
        return Err(refuse(
            format!(
                "the store {} has schema {version}, and this program knows up to {CURRENT}",
                path.display()
            ),
            "use the version of sandboxer that wrote it, or a newer one",
        ));
    }
    let empty =
        application == 0 && version == 0 && !query("SELECT 1 FROM sqlite_schema LIMIT 1").any(connection)?;
    if application != APPLICATION_ID && !empty {
        return Err(refuse(
            format!("{} is a database of another program", path.display()),
            "choose another path for the store",
        ));
    }
    Ok(version)
}

/// Makes the file if need be and brings it up to date, one process at a time.
async fn initialise(path: &Path) -> Attempt<Connection> {
    let deadline = Instant::now() + PATIENCE;
    if let Some(directory) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| from_io(error, "making the directory", directory))?;
    }
    let lock = lock(path, deadline).await?;
    // Only ever created here, never opened: closing a second descriptor of the file would drop the locks that SQLite
    // holds on it in this process.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == IoKind::AlreadyExists => {}
        Err(error) => return Err(from_io(error, "making the store", path).into()),
    }
    let mut connection = connection::open(path)?;
    let version = standing(&connection, path)?;
    if version < CURRENT {
        write_ahead(&mut connection, path, deadline).await?;
        migrate(&mut connection, version)?;
    }
    drop(lock);
    Ok(connection)
}

/// The lock file stays: removing it would let two processes hold two locks under one name.
async fn lock(path: &Path, deadline: Instant) -> Attempt<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&name)
        .map_err(|error| from_io(error, "making the lock file", &name))?;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                tokio::time::sleep(PAUSE).await
            }
            Err(error) => return Err(from_io(error.into(), "locking", &name).into()),
        }
    }
}

/// Turns on WAL mode, which lasts in the file. Needs a moment in which no other process reads it.
async fn write_ahead(connection: &mut Connection, path: &Path, deadline: Instant) -> Attempt<()> {
    loop {
        match connection.query_row("PRAGMA journal_mode = wal", [], |row| row.get::<_, String>(0)) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(_) => {
                let message =
                    format!("the file system of {} cannot share a store between processes", path.display());
                return Err(Error::new(ErrorKind::StoreFailed, message)
                    .with_retry(Retry::Permanent)
                    .with_hint("choose a path on a local file system")
                    .into());
            }
            Err(error) if is_busy(&error) && Instant::now() < deadline => tokio::time::sleep(PAUSE).await,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Everything that the file lacks, in one transaction: it is up to date afterwards or as it was.
fn migrate(connection: &mut Connection, version: i64) -> Attempt<()> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let had = usize::try_from(version).unwrap_or(0);
    for migration in &MIGRATIONS[had..] {
        tx.execute_batch(migration)?;
    }
    // A pragma takes no parameters; both values are constants of ours.
    tx.execute_batch(&format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {CURRENT}"))?;
    tx.commit()?;
    Ok(())
}
