//! The right to work on a sandbox that lives: one at a time, whichever process asks.
//!
//! A lease on a row that is ready, active or paused says that somebody is in the middle of something. When its owner is
//! gone, the backend is brought back to what the row says: nobody was told anything else.

use std::time::Duration;

use sandboxer_core::event::NewEvent;
use sandboxer_core::extension::{Extension, Handle};
use sandboxer_core::tariff::Phase;
use sandboxer_core::{Dur, Error, ErrorKind, Result, SandboxId, State};
use sandboxer_store::{Books, Lease, LeaseChange, Step, Stored, Update};
use serde_json::json;
use std::sync::Arc;

use crate::bill::Money;
use crate::{Caller, Engine, Work};

/// How long to wait for somebody else's work on the same sandbox.
const PATIENCE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// A lease outlives the work that it stands for.
const MARGIN: Dur = Dur::from_secs(30);

/// What can be worked on: the row as it is held, and the way to its backend.
pub(crate) struct Held {
    pub(crate) stored: Stored,
    pub(crate) extension: Arc<dyn Extension>,
    pub(crate) handle: Handle,
}

impl Held {
    pub(crate) fn state(&self) -> State {
        self.stored.record.state()
    }
}

impl Engine {
    /// A lease for work that takes at most so long.
    pub(crate) fn lease_for(&self, span: Dur) -> Lease {
        let until = Dur::from_millis(span.as_millis().saturating_add(MARGIN.as_millis())).after(self.now());
        Lease { until, ..self.lease() }
    }

    /// Takes the sandbox for work of at most this length; waits for whoever has it.
    pub(crate) fn hold<'a>(&'a self, caller: &'a Caller, id: SandboxId, span: Dur) -> Work<'a, Held> {
        Box::pin(async move {
            let deadline = tokio::time::Instant::now() + PATIENCE;
            let mut pause = Duration::from_millis(2);
            loop {
                let stored = self.load_lasting(caller, id).await?;
                if self.is_being_worked_on(&stored) {
                    if tokio::time::Instant::now() > deadline {
                        return Err(Error::new(
                            ErrorKind::Conflict,
                            format!("somebody else is working on sandbox {id}"),
                        )
                        .with_hint("try again when they are done"));
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    continue;
                }
                let extension = self.extension_of(&stored.record).await?;
                let handle = stored.record.handle.clone().ok_or_else(|| {
                    Error::new(ErrorKind::Internal, format!("sandbox {id} is usable and has no handle"))
                })?;
                let update = Update {
                    record: stored.record,
                    expected_version: stored.version,
                    steps: Vec::new(),
                    facts: Vec::new(),
                    lease: LeaseChange::Take(self.lease_for(span)),
                    books: Books::default(),
                };
                match self.inner.store.update(update).await {
                    Ok(stored) => return Ok(Held { stored, extension, handle }),
                    Err(error) if error.kind() == ErrorKind::Conflict => {}
                    Err(error) => return Err(error),
                }
            }
        })
    }

    /// The row of a sandbox that is ready, active or paused now.
    async fn load_lasting(&self, caller: &Caller, id: SandboxId) -> Result<Stored> {
        let mut stored = self.load(caller, id).await?;
        if is_lasting(stored.record.state())
            && (stored.record.sandbox.expires_at <= self.now() || self.is_abandoned(&stored))
        {
            stored = self.settle(stored).await?;
        }
        if is_lasting(stored.record.state()) { Ok(stored) } else { Err(crate::not_usable(&stored)) }
    }

    /// Somebody was in the middle of something with it and is gone.
    pub(crate) fn is_abandoned(&self, stored: &Stored) -> bool {
        stored.lease.is_some() && is_lasting(stored.record.state()) && !self.is_being_worked_on(stored)
    }

    /// Gives the sandbox back, in another state if that changed. Somebody may have written in between: what they wrote
    /// stays, and where it ends the sandbox there is nothing to give back.
    pub(crate) fn let_go(&self, held: Held, to: Option<State>) -> Work<'_, Stored> {
        Box::pin(async move {
            let mut stored = held.stored;
            loop {
                let mut record = stored.record.clone();
                let (mut steps, mut money) = (Vec::new(), Money::default());
                if let Some(to) = to.filter(|to| *to != record.state()) {
                    record.sandbox.state = to;
                    steps.push(Step { to, event: NewEvent::transition(to, self.now(), json!({})) });
                    let phase = if to == State::Paused { Phase::Paused } else { Phase::Running };
                    money = self.switch_meters(&mut record, phase).await?;
                }
                let update = Update {
                    record,
                    expected_version: stored.version,
                    steps,
                    facts: money.facts,
                    lease: LeaseChange::Release,
                    books: money.books,
                };
                let id = stored.record.id();
                match self.inner.store.update(update).await {
                    Err(error) if error.kind() == ErrorKind::Conflict => {
                        stored = self.reload(id).await?;
                        if !is_lasting(stored.record.state()) {
                            return if to.is_some() { Err(crate::not_usable(&stored)) } else { Ok(stored) };
                        }
                    }
                    other => return other,
                }
            }
        })
    }

    /// Brings the backend of abandoned work back to what the row says.
    pub(crate) async fn recover(&self, stored: Stored) -> Result<Stored> {
        let extension = self.extension_of(&stored.record).await?;
        if let Some(handle) = stored.record.handle.as_ref().filter(|_| extension.describe().capability.pause)
        {
            match stored.record.state() {
                State::Paused => extension.pause(handle).await?,
                _ => extension.resume(handle).await?,
            }
        }
        let update = Update {
            record: stored.record.clone(),
            expected_version: stored.version,
            steps: Vec::new(),
            facts: Vec::new(),
            lease: LeaseChange::Release,
            books: Books::default(),
        };
        match self.inner.store.update(update).await {
            // Somebody else did, or went on.
            Err(error) if error.kind() == ErrorKind::Conflict => self.reload(stored.record.id()).await,
            other => other,
        }
    }
}

fn is_lasting(state: State) -> bool {
    matches!(state, State::Ready | State::Active | State::Paused)
}

/// Runs to its end even when nobody waits for it any more: half a step would be worse than an unheard answer.
pub(crate) async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    tokio::spawn(work).await.map_err(|source| {
        Error::new(ErrorKind::Internal, "the work on a sandbox broke off").with_source(source)
    })?
}

/// The backend's answer, in bounded time.
pub(crate) async fn in_time<T>(limit: Dur, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(limit.as_std(), work).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Timeout, format!("the backend did not finish the {what} within {limit}")))
    })
}
