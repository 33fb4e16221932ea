//! The end of a sandbox: one way for destroy, expiry, failure and loss.

use sandboxer_core::event::NewEvent;
use sandboxer_core::extension::CleanupReport;
use sandboxer_core::sandbox::{Sandbox, reason};
use sandboxer_core::{Error, ErrorKind, Result, SandboxId, State, error::Failure};
use sandboxer_store::{Books, LeaseChange, Step, Stored, Update};
use serde_json::json;

use crate::{Caller, Engine, Work, fault};

/// Why a sandbox ends, and through which state.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    /// `expired` or `failed` on the way to `destroying`; absent when somebody asked for the end.
    through: Option<State>,
    reason: &'static str,
    failure: Option<Failure>,
    /// The backend was never reached: there is nothing to take down, and nobody to ask.
    untouched: bool,
}

impl Ending {
    pub(crate) fn because(reason: &'static str) -> Self {
        Self { through: None, reason, failure: None, untouched: false }
    }

    pub(crate) fn expired(reason: &'static str) -> Self {
        Self { through: Some(State::Expired), reason, failure: None, untouched: false }
    }

    pub(crate) fn failed(reason: &'static str, error: &Error) -> Self {
        let untouched = error.had_no_effect();
        Self { through: Some(State::Failed), reason, failure: Some(Failure::from(error)), untouched }
    }

    /// Nobody asked for this end: it was concluded from the row and the backend.
    fn is_a_judgement(&self) -> bool {
        matches!(self.reason, reason::TTL | reason::IDLE | reason::LOST | reason::INTERRUPTED)
    }

    pub(crate) fn with_failure(mut self, error: &Error) -> Self {
        self.failure = Some(Failure::from(error));
        self
    }
}

impl Engine {
    /// Idempotent. A backend that fails keeps the sandbox `failed` with its report; it is tried again later.
    pub async fn destroy(&self, caller: &Caller, id: SandboxId) -> Result<Sandbox> {
        let stored = self.load(caller, id).await?;
        Ok(self.end(stored, Ending::because(reason::REQUESTED)).await?.record.sandbox)
    }

    /// Brings a sandbox to its end, whoever else is working on it. `Conflict` where nobody asked for the end and the row
    /// has changed since it was judged.
    pub(crate) fn end(&self, mut stored: Stored, ending: Ending) -> Work<'_, Stored> {
        Box::pin(async move {
            self.last_sync(&stored).await;
            loop {
                match stored.record.state() {
                    State::Destroyed => return Ok(stored),
                    State::Destroying if self.is_being_worked_on(&stored) => {
                        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                        stored = self.reload(stored.record.id()).await?;
                        continue;
                    }
                    _ => {}
                }
                fault::point("engine.destroy.before_intent");
                match self.mark_destroying(&stored, &ending).await {
                    Ok(marked) => {
                        fault::point("engine.destroy.after_intent");
                        if ending.untouched && marked.record.sandbox.route.hedge.is_none() {
                            return self.record_destroyed(marked, CleanupReport::default()).await;
                        }
                        let ended = self.tear_down(marked).await?;
                        self.forget_workspace(ended.record.id());
                        return Ok(ended);
                    }
                    Err(error) if error.kind() == ErrorKind::Conflict => {
                        // It was judged by what it was, and it is something else now: longer, ready, or somebody's.
                        if ending.is_a_judgement() {
                            return Err(error);
                        }
                        stored = self.reload(stored.record.id()).await?;
                    }
                    Err(error) => return Err(error),
                }
            }
        })
    }

    pub(crate) async fn reload(&self, id: SandboxId) -> Result<Stored> {
        self.inner
            .store
            .get(id)
            .await?
            .ok_or_else(|| Error::new(ErrorKind::SandboxNotFound, format!("there is no sandbox {id}")))
    }

    async fn mark_destroying(&self, stored: &Stored, ending: &Ending) -> Result<Stored> {
        let now = self.now();
        let mut record = stored.record.clone();
        let mut steps = Vec::new();
        let state = record.state();
        if let Some(through) =
            ending.through.filter(|through| state.can_become(*through) && state != State::Destroying)
        {
            let data = json!({ "reason": ending.reason, "failure": ending.failure });
            steps.push(Step { to: through, event: NewEvent::transition(through, now, data) });
        }
        if state != State::Destroying {
            let data = json!({ "reason": ending.reason });
            steps.push(Step {
                to: State::Destroying,
                event: NewEvent::transition(State::Destroying, now, data),
            });
        }
        let ended_at = self.end_of_charge(&record, ending.reason).await?;
        let used = self.used(&record).await;
        let money = self.settle_bill(&mut record, ended_at, used.as_ref()).await?;
        record.sandbox.state = State::Destroying;
        // The first reason and failure stay: a retry of the cleanup is not why the sandbox ended.
        record.sandbox.reason.get_or_insert_with(|| ending.reason.to_owned());
        if record.sandbox.failure.is_none() {
            record.sandbox.failure = ending.failure.clone();
        }
        let is_settled_now = money.books.settle.is_some();
        let update = Update {
            record,
            expected_version: stored.version,
            steps,
            facts: money.facts,
            lease: LeaseChange::Take(self.lease()),
            books: money.books,
        };
        let ending = self.inner.store.update(update).await?;
        if is_settled_now {
            self.note_absorbed(&ending.record);
        }
        Ok(ending)
    }

    async fn tear_down(&self, stored: Stored) -> Result<Stored> {
        let (tag, timeout) = (stored.record.id().to_string(), self.inner.limits.teardown_timeout);
        let work = async {
            let record = &stored.record;
            let extension = self.extension_of(record).await?;
            self.remove_hedge(&stored).await?;
            let report = extension.teardown(&record.sandbox.host, &tag, record.handle.as_ref()).await?;
            self.check_account(record, &report).await?;
            Ok(report)
        };
        let report = tokio::time::timeout(timeout.as_std(), work).await.unwrap_or_else(|_| {
            Err(Error::new(
                ErrorKind::Timeout,
                format!("the backend did not finish the teardown within {timeout}"),
            ))
        });
        fault::point("engine.destroy.after_teardown");
        match report {
            Ok(report) if report.is_clean() => self.record_destroyed(stored, report).await,
            Ok(report) => {
                let left: Vec<String> =
                    report.left.iter().map(|l| format!("{} ({})", l.what, l.reason)).collect();
                let error =
                    Error::new(ErrorKind::CleanupFailed, format!("the teardown left {}", left.join(", ")));
                Err(self.record_cleanup_failed(stored, Some(report), error).await)
            }
            Err(error) => {
                let error = Error::new(ErrorKind::CleanupFailed, "the backend did not take the sandbox down")
                    .with_source(error);
                Err(self.record_cleanup_failed(stored, None, error).await)
            }
        }
    }

    async fn record_destroyed(&self, stored: Stored, report: CleanupReport) -> Result<Stored> {
        let (id, now) = (stored.record.id(), self.now());
        let mut record = stored.record;
        record.sandbox.state = State::Destroyed;
        record.sandbox.destroyed_at = Some(now);
        record.sandbox.route.hedge = None;
        let data = json!({ "reason": record.sandbox.reason, "cleanup": report });
        record.sandbox.cleanup = Some(report);
        let event = NewEvent::transition(State::Destroyed, now, data);
        let destroyed = self
            .inner
            .store
            .update(Update {
                record,
                expected_version: stored.version,
                steps: vec![Step { to: State::Destroyed, event }],
                facts: Vec::new(),
                lease: LeaseChange::Release,
                books: Books::default(),
            })
            .await;
        fault::point("engine.destroy.after_destroyed");
        match destroyed {
            // The lease ran out and somebody else finished: the answer is theirs.
            Err(error) if error.kind() == ErrorKind::Conflict => Some(self.reload(id).await?)
                .filter(|other| other.record.state() == State::Destroyed)
                .ok_or(error),
            other => other,
        }
    }

    /// Keeps a failed teardown visible. The error that is returned says what is left.
    async fn record_cleanup_failed(
        &self,
        stored: Stored,
        report: Option<CleanupReport>,
        error: Error,
    ) -> Error {
        let now = self.now();
        let mut record = stored.record;
        record.sandbox.state = State::Failed;
        record.sandbox.cleanup = report;
        let failure = Failure::from(&error);
        let data =
            json!({ "reason": "cleanup_failed", "failure": failure, "cleanup": record.sandbox.cleanup });
        record.sandbox.failure = Some(failure);
        let event = NewEvent::transition(State::Failed, now, data);
        let update = Update {
            record,
            expected_version: stored.version,
            steps: vec![Step { to: State::Failed, event }],
            facts: Vec::new(),
            lease: LeaseChange::Release,
            books: Books::default(),
        };
        if let Err(store_error) = self.inner.store.update(update).await {
            tracing::error!(error = ?store_error, "a failed teardown could not be recorded");
        }
        error.with_hint(
            "it stays listed as `failed` and is tried again; `sandboxer get` shows the cleanup report",
        )
    }

    /// Somebody holds the lease and may still live.
    pub(crate) fn is_being_worked_on(&self, stored: &Stored) -> bool {
        stored
            .lease
            .as_ref()
            .is_some_and(|lease| lease.until > self.now() && !crate::owner::Owner::is_gone(&lease.owner))
    }
}
