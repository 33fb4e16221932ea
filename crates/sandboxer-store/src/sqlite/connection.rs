//! Connections: how they are set up, the one that writes and those that read.
//!
//! SQLite runs on the caller's own thread: a statement takes some microseconds, and handing it to another thread takes
//! several times that. The one thing that may take long, another process that writes, is waited for without a thread.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::fault::{Attempt, Fault, is_busy};

/// How long to wait for another process. Far above any transaction of ours, and above a slow disk's checkpoint.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Between two tries for the lock: first as long as a short transaction takes, later longer.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(5)];
const SHORT_PAUSES: u32 = 20;
/// Connections that are kept for reading. More are opened when more is read at the same moment.
const READERS: usize = 8;
/// Statements that a connection keeps prepared; more than there are.
const STATEMENTS: usize = 256;
/// Writes between two tidyings; about a thousand pages.
const WRITES: u32 = 64;
/// Pages; 8 MiB.
const LONG_LOG: i64 = 2_048;
/// In WAL mode a commit then survives the death of the process at once, and that of the machine after the next
/// checkpoint; the file stays consistent in either case. The log is cut back to 16 MiB after a burst. A commit that finds
/// it longer than 16384 pages (64 MiB) empties it itself, and waits for the disk; the rule is that [`Tidy`] did so long
/// before, on the side. The journal mode is not among them: it is a property of the file.
const SETTINGS: &str = "PRAGMA foreign_keys = on; PRAGMA synchronous = normal; \
    PRAGMA journal_size_limit = 16777216; PRAGMA wal_autocheckpoint = 16384; PRAGMA temp_store = memory";

/// Opens a file that is there.
pub(super) fn open(path: &Path) -> Attempt<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    // For what another process does at any moment and shortly, such as recovering the log of one that was killed.
    connection.busy_timeout(PATIENCE)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.execute_batch(SETTINGS)?;
    Ok(connection)
}

/// The connection that writes, made anew when it was lost.
#[derive(Debug)]
pub(super) struct Writer {
    path: PathBuf,
    connection: Option<Connection>,
}

impl Writer {
    pub(super) fn new(path: PathBuf, connection: Connection) -> Self {
        Self { path, connection: Some(connection) }
    }

    /// Runs a transaction. Nothing of it stays when it fails.
    pub(super) async fn transaction<T>(
        &mut self,
        deadline: Instant,
        work: impl FnOnce(&Connection) -> Attempt<T>,
    ) -> Attempt<T> {
        self.begin(deadline).await?;
        let outcome = self.finish(work);
        if outcome.as_ref().is_err_and(|fault| fault.spoils_connection()) {
            self.connection = None;
        }
        outcome
    }

    /// Takes the right to write, which one process has at a time. A transaction that reads first and writes later would
    /// fail when another process writes in between.
    async fn begin(&mut self, deadline: Instant) -> Attempt<()> {
        let mut tries = 0;
        loop {
            let connection = self.connection()?;
            // Another process is waited for below, where nobody's thread is held up.
            connection.busy_timeout(Duration::ZERO)?;
            let begun = connection.execute_batch("BEGIN IMMEDIATE");
            connection.busy_timeout(PATIENCE)?;
            match begun {
                Ok(()) => return Ok(()),
                Err(error) if is_busy(&error) && Instant::now() < deadline => {}
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(PAUSES[usize::from(tries >= SHORT_PAUSES)]).await;
            tries += 1;
        }
    }

    /// Everything after the beginning, without a pause: a caller that goes away leaves no transaction behind.
    fn finish<T>(&mut self, work: impl FnOnce(&Connection) -> Attempt<T>) -> Attempt<T> {
        let connection =
            self.connection.as_ref().ok_or_else(|| Fault::internal("no transaction was begun"))?;
        let outcome = work(connection);
        let end = if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = connection.prepare_cached(end).and_then(|mut statement| statement.execute([]));
        match ended {
            Ok(_) => outcome,
            Err(error) => {
                self.connection = None;
                outcome.and(Err(error.into()))
            }
        }
    }

    /// One that is in no transaction. For reading, and to begin with.
    pub(super) fn connection(&mut self) -> Attempt<&Connection> {
        let usable = self.connection.take().filter(Connection::is_autocommit);
        let connection = match usable {
            Some(connection) => connection,
            None => open(&self.path)?,
        };
        Ok(self.connection.insert(connection))
    }
}

/// Connections that only read. In WAL mode they wait for nobody.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    opened: AtomicBool,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, idle: Mutex::default(), opened: AtomicBool::new(false) }
    }

    /// Whether there ever was one.
    pub(super) fn are_in_use(&self) -> bool {
        self.opened.load(Ordering::Relaxed)
    }

    pub(super) fn read<T>(&self, work: impl FnOnce(&Connection) -> Attempt<T>) -> Attempt<T> {
        let connection = match self.idle().pop() {
            Some(connection) => connection,
            None => self.open()?,
        };
        let outcome = work(&connection);
        if !outcome.as_ref().is_err_and(|fault| fault.spoils_connection()) && connection.is_autocommit() {
            let mut idle = self.idle();
            if idle.len() < READERS {
                idle.push(connection);
            }
        }
        outcome
    }

    fn open(&self) -> Attempt<Connection> {
        let connection = open(&self.path)?;
        connection.execute_batch("PRAGMA query_only = on")?;
        self.opened.store(true, Ordering::Relaxed);
        Ok(connection)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes what it can without making another process wait. How many pages the log has.
fn checkpoint(connection: &Connection) -> Attempt<i64> {
    Ok(connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1))?)
}

/// Empties the log into the file every now and then, beside the writes. A checkpoint waits for the disk, some tens of
/// milliseconds, and by default SQLite lets one commit in every few dozen do so.
#[derive(Debug, Default)]
pub(super) struct Tidy {
    writes: AtomicU32,
    running: Arc<AtomicBool>,
}

impl Tidy {
    pub(super) fn after_write(&self, readers: &Arc<Readers>, writer: &Arc<AsyncMutex<Writer>>) {
        if self.writes.fetch_add(1, Ordering::Relaxed) + 1 < WRITES
            || self.running.swap(true, Ordering::AcqRel)
        {
            return;
        }
        self.writes.store(0, Ordering::Relaxed);
        let (running, readers, writer) = (Arc::clone(&self.running), Arc::clone(readers), Arc::clone(writer));
        tokio::task::spawn_blocking(move || {
            // What was written meanwhile is still in the log, which begins anew only when nothing is. A log that has become
            // long is emptied to the end while nobody here writes: the first turn left little to do.
            let done = readers.read(checkpoint).and_then(|pages| {
                if pages < LONG_LOG {
                    return Ok(());
                }
                checkpoint(writer.blocking_lock().connection()?).map(drop)
            });
            if let Err(error) = done {
                tracing::debug!(?error, "the log of the store could not be emptied");
            }
            running.store(false, Ordering::Release);
        });
    }
}
