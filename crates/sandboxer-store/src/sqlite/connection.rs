//! Connections: how they are set up, the one that writes and those that read.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions as _, Connection as _, Sqlite};
use tokio::sync::MutexGuard;

use super::fault::Attempt;

/// How long to wait for another process. Far above any transaction of ours, and above a slow disk's checkpoint.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Enough to keep the processors of a small machine busy; each one is a thread.
const READERS: u32 = 4;
/// The log is cut back to this size after a burst (16 MiB).
const LOG_BYTES: &str = "16777216";
/// A commit that finds the log longer than this many pages (64 MiB) empties it itself, and waits for the disk. The
/// rule is that [`Tidy`] did so long before, on the side.
const LONGEST_LOG: &str = "16384";
/// Writes between two tidyings; about a thousand pages.
const WRITES: u32 = 64;

/// The settings of every connection. The journal mode is not among them: it is a property of the file.
pub(super) fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .foreign_keys(true)
        // In WAL mode a commit then survives the death of the process at once, and that of the machine after the next
        // checkpoint; the file stays consistent in either case.
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(PATIENCE)
        .pragma("journal_size_limit", LOG_BYTES)
        .pragma("wal_autocheckpoint", LONGEST_LOG)
        .pragma("temp_store", "memory")
        .disable_statement_logging()
}

/// Opened one by one, when reads overlap.
pub(super) fn readers(options: &SqliteConnectOptions) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(READERS)
        .min_connections(0)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .acquire_timeout(PATIENCE)
        .connect_lazy_with(options.clone().pragma("query_only", "on"))
}

/// The connection that writes, made anew when it was lost.
#[derive(Debug)]
pub(super) struct Writer {
    options: SqliteConnectOptions,
    connection: Option<SqliteConnection>,
}

impl Writer {
    pub(super) fn new(options: SqliteConnectOptions, connection: SqliteConnection) -> Self {
        Self { options, connection: Some(connection) }
    }

    pub(super) async fn connection(&mut self) -> Attempt<&mut SqliteConnection> {
        let mut ready = None;
        if let Some(mut connection) = self.connection.take() {
            // A caller that went away in the middle of a transaction left its rollback in the connection's queue.
            // Where SQLite had rolled back by itself, as on a full disk, that one fails and the connection is stuck.
            let usable = !connection.is_in_transaction()
                || (connection.ping().await.is_ok() && !connection.is_in_transaction());
            ready = usable.then_some(connection);
        }
        let connection = match ready {
            Some(connection) => connection,
            None => self.options.connect().await?,
        };
        Ok(self.connection.insert(connection))
    }

    /// Lets go of a connection that SQLite left in doubt.
    pub(super) fn settle<T>(&mut self, outcome: &Attempt<T>) {
        if outcome.as_ref().is_err_and(|fault| fault.spoils_connection()) {
            self.connection = None;
        }
    }

    pub(super) async fn close(self) {
        if let Some(connection) = self.connection
            && let Err(error) = connection.close().await
        {
            tracing::debug!(%error, "the store did not close cleanly");
        }
    }
}

/// Empties the log into the file every now and then, beside the writes. A checkpoint waits for the disk, some tens of
/// milliseconds, and by default SQLite lets one commit in every few dozen do so.
#[derive(Debug, Default)]
pub(super) struct Tidy {
    writes: AtomicU32,
    running: Arc<AtomicBool>,
}

impl Tidy {
    pub(super) fn after_write(&self, connections: &SqlitePool) {
        if self.writes.fetch_add(1, Ordering::Relaxed) + 1 < WRITES
            || self.running.swap(true, Ordering::AcqRel)
        {
            return;
        }
        self.writes.store(0, Ordering::Relaxed);
        let (running, connections) = (Arc::clone(&self.running), connections.clone());
        tokio::spawn(async move {
            // Passive: takes what it can without making anybody wait.
            if let Err(error) = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").execute(&connections).await {
                tracing::debug!(%error, "the log of the store could not be emptied");
            }
            running.store(false, Ordering::Release);
        });
    }
}

/// A connection to read on: the writer's while nobody needs it, or one from the pool.
pub(super) enum Reader<'a> {
    Shared(MutexGuard<'a, Writer>),
    Own(PoolConnection<Sqlite>),
}

impl Reader<'_> {
    pub(super) async fn connection(&mut self) -> Attempt<&mut SqliteConnection> {
        match self {
            Self::Shared(writer) => writer.connection().await,
            Self::Own(connection) => Ok(connection),
        }
    }
}
