//! A second sandbox beside a slow first one. Whichever is ready first stays; the other is taken down and never charged.
//!
//! The row names both for as long as both may exist: the second one is written down before it is started, and the
//! slower one stays written down until it is clean. Whoever ends the sandbox or finds its maker dead removes both.

use sandboxer_core::event::NewEvent;
use sandboxer_core::route::{Backend, Hedged};
use sandboxer_core::{Dur, Error, ErrorKind, Result, SandboxId, State};
use sandboxer_store::{Books, LeaseChange, Stored, Update};
use serde_json::json;
use std::time::Duration;
use tokio_util::task::AbortOnDropHandle;

use crate::attempt::{Notes, Tried, backend_of};
use crate::establish::Making;
use crate::owner::Owner;
use crate::reroute::{attempt, has_own_key};
use crate::{Engine, fault};

/// How long the slower one may go on before it is cut off: a backend that is asked to take down what it is just making
/// may make it afterwards.
const GRACE: Duration = Duration::from_secs(60);
/// How long the row is waited for before somebody else may clear it.
const PATIENCE: Duration = Duration::from_secs(60);

type Running = AbortOnDropHandle<Tried>;

impl Engine {
    /// The offer that the row names, with company if it is slow and the route says so.
    pub(crate) async fn try_offer(&self, stored: &mut Stored, making: &Making) -> Tried {
        let route = &stored.record.sandbox.route;
        let is_alone = route.untried_beside(&backend_of(stored)).is_none();
        // A workspace's content is packed for one sandbox at a time, and a checkpoint is in one place only.
        let is_bound = making.from.is_some() || stored.record.spec.workspace_source.is_some();
        match route.hedge_after {
            Some(after) if !is_alone && !is_bound && route.hedge.is_none() => {
                self.try_with_company(stored, making, after).await
            }
            _ => self.attempt(stored, making).await,
        }
    }

    async fn try_with_company(&self, stored: &mut Stored, making: &Making, after: Dur) -> Tried {
        let first_place = backend_of(stored);
        let mut first = self.start(stored.clone(), making.clone());
        tokio::select! {
            biased;
            done = &mut first => return tried(done),
            () = tokio::time::sleep(after.as_std()) => {}
        }
        let Some(second_row) = self.invite(stored, after).await else { return tried(first.await) };
        let second_place = backend_of(&second_row);
        // As they are now: the row's bill becomes that of the quicker one.
        let (first_own, second_own) = (has_own_key(stored), has_own_key(&second_row));
        fault::point("engine.hedge.after_intent");
        let apart = Making { notes: Notes::default(), ..making.clone() };
        let mut second = self.start(second_row, apart);
        let (one, other) = tokio::select! {
            biased;
            done = &mut first => (Some(tried(done)), None),
            done = &mut second => (None, Some(tried(done))),
        };
        match (one, other) {
            // The first was quicker after all.
            (Some(one), _) if one.outcome.is_ok() => {
                self.dismiss(stored.record.id(), second_place, Some(second));
                one
            }
            // What is wrong with the request is wrong everywhere.
            (Some(one), _) if one.outcome.as_ref().is_err_and(|error| error.class().is_none()) => {
                // The row is about to end, and nobody looks at one that has: what comes late must come before that.
                let _ = tokio::time::timeout(GRACE, second).await;
                self.remove_second(stored, &second_place).await;
                one
            }
            // The first failed: the second is the only hope now.
            (Some(one), _) => {
                let other = tried(second.await);
                if let Err(error) = &other.outcome {
                    self.blame(&second_place, error, second_own).await;
                    self.second_failed(stored, &second_place, error, other.took).await;
                    return self.both_failed(stored, one, first_own, error).await;
                }
                match self
                    .prefer(stored, &second_place, one.outcome.as_ref().err().map(|e| (e, one.took)))
                    .await
                {
                    Ok(()) => {
                        if let Err(error) = &one.outcome {
                            self.blame(&first_place, error, first_own).await;
                        }
                        self.dismiss(stored.record.id(), first_place, None);
                        other
                    }
                    Err(error) => {
                        tracing::warn!(error = ?error, "the quicker sandbox could not be kept");
                        self.dismiss(stored.record.id(), second_place, None);
                        one
                    }
                }
            }
            (None, Some(other)) => match &other.outcome {
                Ok(_) => match self.prefer(stored, &second_place, None).await {
                    Ok(()) => {
                        self.dismiss(stored.record.id(), first_place, Some(first));
                        other
                    }
                    Err(error) => {
                        tracing::warn!(error = ?error, "the quicker sandbox could not be kept");
                        self.dismiss(stored.record.id(), second_place, None);
                        tried(first.await)
                    }
                },
                Err(error) => {
                    self.blame(&second_place, error, second_own).await;
                    self.second_failed(stored, &second_place, error, other.took).await;
                    let one = tried(first.await);
                    self.both_failed(stored, one, first_own, error).await
                }
            },
            (None, None) => tried(first.await),
        }
    }

    fn start(&self, row: Stored, making: Making) -> Running {
        let engine = self.clone();
        AbortOnDropHandle::new(tokio::spawn(async move { engine.attempt(&row, &making).await }))
    }

    /// Writes down that a second one is about to be started, and gives its row: the same sandbox in another place.
    async fn invite(&self, stored: &mut Stored, after: Dur) -> Option<Stored> {
        let first = backend_of(stored);
        let second = stored.record.sandbox.route.untried_beside(&first)?.backend();
        let mut record = stored.record.clone();
        record.sandbox.route.hedge = Some(second.clone());
        let (extension, host) = (second.extension.clone(), second.host.clone());
        let maker = self.inner.owner.as_str().to_owned();
        let hedged = Hedged { extension, host, won: false, beside: first, maker };
        record.sandbox.route.hedged = Some(Box::new(hedged));
        let about = json!({ "extension": second.extension, "host": second.host, "after": after });
        let mut elsewhere = record.clone();
        (elsewhere.sandbox.extension, elsewhere.sandbox.host) = (second.extension, second.host);
        if let Err(error) = self.rebill(&mut elsewhere).await {
            tracing::warn!(error = ?error, "a slow create gets no company");
            return None;
        }
        let money = self.hold_for_either(&mut record, elsewhere.bill.as_ref());
        let mut facts = vec![NewEvent::fact("sandbox.hedged", self.now(), about)];
        facts.extend(money.facts);
        let update = Update {
            record,
            expected_version: stored.version,
            steps: Vec::new(),
            facts,
            lease: LeaseChange::Take(self.lease()),
            books: money.books,
        };
        match self.inner.store.update(update).await {
            Ok(written) => *stored = written,
            Err(error) => {
                tracing::warn!(error = ?error, "a slow create gets no company");
                return None;
            }
        }
        let mut row = stored.clone();
        row.record.sandbox.extension = elsewhere.sandbox.extension;
        row.record.sandbox.host = elsewhere.sandbox.host;
        row.record.bill = elsewhere.bill;
        Some(row)
    }

    /// The row names the second one as its place, at its price, and the first as the one that has to go.
    async fn prefer(
        &self,
        stored: &mut Stored,
        second: &Backend,
        failed: Option<(&Error, Duration)>,
    ) -> Result<()> {
        let first = backend_of(stored);
        let mut record = stored.record.clone();
        (record.sandbox.extension, record.sandbox.host) = (second.extension.clone(), second.host.clone());
        let route = &mut record.sandbox.route;
        route.hedge = Some(first.clone());
        if let Some(hedged) = &mut route.hedged {
            hedged.won = true;
        }
        route.attempts.extend(failed.map(|(error, took)| attempt(&first, error, took)));
        let about = json!({ "extension": second.extension, "host": second.host, "instead_of": first });
        let money = self.rebill(&mut record).await?;
        let mut facts = vec![NewEvent::fact("sandbox.hedge_won", self.now(), about)];
        facts.extend(money.facts);
        let update = Update {
            record,
            expected_version: stored.version,
            steps: Vec::new(),
            facts,
            lease: LeaseChange::Take(self.lease()),
            books: money.books,
        };
        *stored = self.update_paid(update).await?;
        fault::point("engine.hedge.after_switch");
        Ok(())
    }

    /// The first goes on alone. What the second left stays written down until it is removed.
    async fn second_failed(&self, stored: &mut Stored, second: &Backend, error: &Error, took: Duration) {
        stored.record.sandbox.route.attempts.push(attempt(second, error, took));
        if error.had_no_effect() {
            stored.record.sandbox.route.hedge = None;
        } else {
            self.remove_second(stored, second).await;
        }
    }

    async fn remove_second(&self, stored: &mut Stored, second: &Backend) {
        match self.clean(second, &stored.record).await {
            Ok(()) => stored.record.sandbox.route.hedge = None,
            Err(left) => {
                let id = stored.record.id();
                tracing::warn!(sandbox = %id, error = ?left, "the second sandbox is not clean; it will be tried again");
            }
        }
    }

    /// The first one's word counts, unless the second said that the request itself is at fault: then nobody else would do
    /// better. The first may have kept its word after all.
    async fn both_failed(&self, stored: &mut Stored, one: Tried, first_own: bool, second: &Error) -> Tried {
        let Err(error) = &one.outcome else { return one };
        if error.class().is_none() || second.class().is_some() {
            return one;
        }
        let first = backend_of(stored);
        self.blame(&first, error, first_own).await;
        stored.record.sandbox.route.attempts.push(attempt(&first, error, one.took));
        Tried { outcome: Err(second.clone().with_effect()), took: one.took }
    }

    /// Takes the slower one down while nobody waits, and clears the row.
    fn dismiss(&self, id: SandboxId, place: Backend, running: Option<Running>) {
        let engine = self.clone();
        self.inner.memory.dismissed.spawn(async move {
            if let Some(running) = running {
                let _ = tokio::time::timeout(GRACE, running).await;
            }
            let cleaned = async { engine.clean(&place, &engine.reload(id).await?.record).await };
            if let Err(error) = cleaned.await {
                tracing::warn!(sandbox = %id, error = ?error, "the slower sandbox is not clean; it will be tried again");
                return;
            }
            fault::point("engine.hedge.after_teardown");
            engine.clear_hedge(id, &place).await;
        });
    }

    /// Once whoever works on the row is done with it.
    async fn clear_hedge(&self, id: SandboxId, place: &Backend) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while tokio::time::Instant::now() < deadline {
            let Ok(Some(stored)) = self.inner.store.get(id).await else { return };
            let is_named = stored.record.sandbox.route.hedge.as_ref() == Some(place);
            if !is_named || stored.record.state() == State::Destroyed {
                return;
            }
            if !self.is_being_worked_on(&stored) && self.write_cleared(&stored).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn write_cleared(&self, stored: &Stored) -> Result<Stored> {
        let mut record = stored.record.clone();
        record.sandbox.route.hedge = None;
        let update = Update {
            record,
            expected_version: stored.version,
            steps: Vec::new(),
            facts: Vec::new(),
            lease: LeaseChange::Keep,
            books: Books::default(),
        };
        self.inner.store.update(update).await
    }

    /// Takes down what the row names beside its own place. An error when something may be left.
    pub(crate) async fn remove_hedge(&self, stored: &Stored) -> Result<()> {
        match &stored.record.sandbox.route.hedge {
            None => Ok(()),
            Some(place) => self.clean(place, &stored.record).await,
        }
    }

    /// The same for a sandbox that lives: whoever should have done it may be gone.
    pub(crate) async fn settle_hedge(&self, stored: Stored) -> Stored {
        if stored.record.sandbox.route.hedge.is_none() || self.is_being_worked_on(&stored) {
            return stored;
        }
        let cleared = async {
            self.remove_hedge(&stored).await?;
            // What comes late must be found by the next look.
            if self.may_still_come(&stored)? {
                return Ok(stored.clone());
            }
            self.write_cleared(&stored).await
        };
        match cleared.await {
            Ok(cleared) => cleared,
            Err(error) => {
                tracing::warn!(error = ?error, sandbox = %stored.record.id(), "a second sandbox is not gone yet");
                stored
            }
        }
    }

    /// Whether the maker of both lives and may still be at the slower one.
    fn may_still_come(&self, stored: &Stored) -> Result<bool> {
        let sandbox = &stored.record.sandbox;
        let maker = sandbox.route.hedged.as_ref().map(|hedged| hedged.maker.as_str());
        let is_there = maker.is_some_and(|maker| match maker {
            "" => false,
            maker if maker == self.inner.owner.as_str() => !self.inner.memory.dismissed.is_empty(),
            maker => !Owner::is_gone(maker),
        });
        let longest = self.provision_limit(stored)?.as_std() + GRACE;
        let longest = Dur::from_millis(u64::try_from(longest.as_millis()).unwrap_or(u64::MAX));
        Ok(is_there && longest.after(sandbox.created_at) > self.now())
    }
}

/// What a task gave, or that it broke off.
fn tried(done: std::result::Result<Tried, tokio::task::JoinError>) -> Tried {
    done.unwrap_or_else(|source| Tried {
        outcome: Err(Error::new(ErrorKind::Internal, "a create broke off").with_source(source)),
        took: Duration::ZERO,
    })
}
