//! Transfers: those that wait at the same moment are written together.
//!
//! A transaction costs far more than the rows in it. Whoever gets the writing connection first takes all that wait,
//! decides about each in turn and writes what is allowed in one transaction; one that is refused leaves the others
//! alone.

use std::sync::{Mutex, PoisonError};

use sandboxer_core::ledger::{Entry, FEES, Kind, WORLD, check_amount, check_name};
use sandboxer_core::{Error, ErrorKind, Result};
use tokio::sync::{MutexGuard, oneshot};
use tokio::time::Instant;

use super::accounts::require_written_out;
use super::batch;
use crate::ledger::Transfer;
use crate::sqlite::SqliteStore;
use crate::sqlite::connection::{PATIENCE, Writer};
use crate::sqlite::fault::Attempt;

/// Written together at most; some milliseconds of work.
const BATCH: usize = 256;
const LONGEST_ID: usize = 300;
const LONGEST_MEMO: usize = 1_024;

pub(super) type Answer = Result<Vec<Entry>>;

struct Waiting {
    transfer: Transfer,
    answer: oneshot::Sender<Answer>,
}

/// Transfers that nobody has begun to write.
#[derive(Default)]
pub(in crate::sqlite) struct Queue(Mutex<Vec<Waiting>>);

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Queue")
    }
}

impl Queue {
    fn join(&self, transfer: Transfer) -> oneshot::Receiver<Answer> {
        let (answer, receiver) = oneshot::channel();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Waiting { transfer, answer });
        receiver
    }

    /// The next few, oldest first. Those whose caller went away are dropped: nobody was told anything.
    fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|one| !one.answer.is_closed());
        let first = waiting.len().min(BATCH);
        let rest = waiting.split_off(first);
        std::mem::replace(&mut waiting, rest)
    }
}

pub(super) async fn transfer(store: &SqliteStore, transfer: &Transfer) -> Answer {
    store.told("transfer", check(transfer))?;
    let mut answer = store.transfers.join(transfer.clone());
    loop {
        let writer = tokio::select! {
            biased;
            told = &mut answer => match told {
                Ok(told) => return told,
                Err(_) => {
                    // Whoever wrote for us was cancelled. The id tells whether it got as far as us.
                    answer = store.transfers.join(transfer.clone());
                    continue;
                }
            },
            writer = store.writer.lock() => writer,
        };
        lead(store, writer, store.transfers.take()).await;
    }
}

/// Writes for everybody in the batch, and tells them.
async fn lead(store: &SqliteStore, mut writer: MutexGuard<'_, Writer>, batch: Vec<Waiting>) {
    if batch.is_empty() {
        return;
    }
    let transfers: Vec<&Transfer> = batch.iter().map(|one| &one.transfer).collect();
    let answers = match attempt(&mut writer, &transfers).await {
        Ok(answers) => answers,
        Err(fault) if batch.len() == 1 => vec![store.told("transfer", Err(fault))],
        // Each by itself, so that everybody gets an error of their own, and only those whom it concerns.
        Err(_) => {
            let mut answers = Vec::with_capacity(batch.len());
            for one in &transfers {
                let outcome = attempt(&mut writer, &[one]).await;
                let answer =
                    store.told("transfer", outcome).and_then(|mut told| told.pop().unwrap_or(Ok(Vec::new())));
                answers.push(answer);
            }
            answers
        }
    };
    for (one, answer) in batch.into_iter().zip(answers) {
        // A caller that went away has no use for it.
        let _ = one.answer.send(answer);
    }
    drop(writer);
    store.tidy.after_write(&store.readers, &store.writer);
}

async fn attempt(writer: &mut Writer, transfers: &[&Transfer]) -> Attempt<Vec<Answer>> {
    let deadline = Instant::now() + PATIENCE;
    writer.transaction(deadline, |connection| batch::write(connection, transfers)).await
}

/// What can be seen without looking at the books.
fn check(transfer: &Transfer) -> Attempt<()> {
    let refuse = |message: String| Err(Error::new(ErrorKind::InvalidInput, message).into());
    check_amount(transfer.amount)?;
    if transfer.id.is_empty() || transfer.id.len() > LONGEST_ID {
        return refuse(format!("the id of a transfer has 1 to {LONGEST_ID} bytes"));
    }
    if transfer.id.starts_with("sbx_") {
        // `sbx_…/settle` taken by somebody else would leave a sandbox that cannot be settled.
        return refuse("an id that begins with `sbx_` belongs to a sandbox".into());
    }
    if transfer.id.chars().chain(transfer.memo.chars()).any(char::is_control) {
        return refuse("the id and the memo of a transfer have no control characters".into());
    }
    if transfer.memo.len() > LONGEST_MEMO {
        return refuse(format!("a memo has at most {LONGEST_MEMO} bytes"));
    }
    if matches!(transfer.kind, Kind::Hold | Kind::Settlement) {
        return refuse(format!("a {} belongs to a sandbox", transfer.kind.as_str()));
    }
    if transfer.from == transfer.to {
        return refuse(format!("a transfer from {0} to {0} moves nothing", transfer.from));
    }
    check_account(&transfer.from)?;
    check_account(&transfer.to)
}

/// Anybody's account but what is held, which only sandboxes move.
fn check_account(name: &str) -> Attempt<()> {
    match name.split_once(':') {
        None if name == WORLD || name == FEES => Ok(()),
        Some(("provider", extension)) => Ok(check_name("a provider", extension)?),
        _ => require_written_out(name),
    }
}
