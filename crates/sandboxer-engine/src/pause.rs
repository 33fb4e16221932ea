//! Pause and resume. Both may be asked twice; the TTL goes on meanwhile.

use sandboxer_core::page::Limit;
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::{Error, Result, SandboxId, State};
use sandboxer_store::{EventFilter, LeaseChange, Stored, Update};

use crate::hold::{Held, detached, in_time};
use crate::{Caller, Engine, fault};

impl Engine {
    /// Stops everything inside where it stands.
    pub async fn pause(&self, caller: &Caller, id: SandboxId) -> Result<Sandbox> {
        let (engine, caller) = (self.clone(), caller.clone());
        detached(async move { engine.pause_now(&caller, id).await }).await
    }

    /// Lets it go on.
    pub async fn resume(&self, caller: &Caller, id: SandboxId) -> Result<Sandbox> {
        let (engine, caller) = (self.clone(), caller.clone());
        detached(async move { engine.resume_now(&caller, id).await }).await
    }

    async fn pause_now(&self, caller: &Caller, id: SandboxId) -> Result<Sandbox> {
        let stored = self.load(caller, id).await?;
        self.require_pause(&stored)?;
        let held = self.hold(caller, id, self.inner.limits.teardown_timeout).await?;
        fault::point("engine.pause.after_intent");
        if held.state() == State::Paused {
            return Ok(self.let_go(held, None).await?.record.sandbox);
        }
        let paused =
            in_time(self.inner.limits.teardown_timeout, "pause", held.extension.pause(&held.handle)).await;
        fault::point("engine.pause.after_effect");
        match paused {
            Ok(()) => {
                let paused = self.let_go(held, Some(State::Paused)).await?;
                fault::point("engine.pause.after_paused");
                Ok(paused.record.sandbox)
            }
            Err(error) => {
                // Whatever of it happened is undone: the row still says that it runs.
                if let Err(undo) = held.extension.resume(&held.handle).await {
                    tracing::debug!(error = ?undo, sandbox = %id, "a failed pause could not be undone");
                }
                let stored = self.let_go(held, None).await?;
                self.or_settle(stored, Err(error)).await
            }
        }
    }

    async fn resume_now(&self, caller: &Caller, id: SandboxId) -> Result<Sandbox> {
        let stored = self.load(caller, id).await?;
        self.require_pause(&stored)?;
        let held = self.hold(caller, id, self.inner.limits.teardown_timeout).await?;
        fault::point("engine.resume.after_intent");
        if held.state() != State::Paused {
            return Ok(self.let_go(held, None).await?.record.sandbox);
        }
        let mut held = held;
        if let Err(error) = self.pay_for_resume(&mut held).await {
            self.let_go(held, None).await?;
            return Err(error);
        }
        fault::point("engine.resume.after_hold");
        let resumed =
            in_time(self.inner.limits.teardown_timeout, "resume", held.extension.resume(&held.handle)).await;
        fault::point("engine.resume.after_effect");
        match resumed {
            Ok(()) => {
                let back = self.state_before_pause(id).await?;
                let resumed = self.let_go(held, Some(back)).await?;
                fault::point("engine.resume.after_resumed");
                Ok(resumed.record.sandbox)
            }
            Err(error) => {
                let stored = self.let_go(held, None).await?;
                self.hold_less(&stored).await;
                self.or_settle(stored, Err(error)).await
            }
        }
    }

    /// The price may have risen while it was paused: what is missing is set aside first.
    async fn pay_for_resume(&self, held: &mut Held) -> Result<()> {
        let mut record = held.stored.record.clone();
        let money = self.hold_for_resume(&mut record)?;
        if money.books.is_empty() {
            return Ok(());
        }
        let update = Update {
            record,
            expected_version: held.stored.version,
            steps: Vec::new(),
            facts: money.facts,
            lease: LeaseChange::Keep,
            books: money.books,
        };
        held.stored = self.update_paid(update).await?;
        Ok(())
    }

    /// Said before anything is written.
    fn require_pause(&self, stored: &Stored) -> Result<()> {
        let description = self.description_of(stored)?;
        if description.capability.pause {
            return Ok(());
        }
        Err(Error::unsupported(&description.id, "pause"))
    }

    /// `active` if something has run in it, as its events tell; they are few before the first pause.
    async fn state_before_pause(&self, id: SandboxId) -> Result<State> {
        let filter = EventFilter { subject: Some(id), owner_key: None };
        let events = self.inner.store.events(&filter, 0, Limit::new(Limit::MAX)?).await?;
        let was_active = events.iter().any(|placed| placed.event.kind == "dev.sandboxer.sandbox.active");
        Ok(if was_active { State::Active } else { State::Ready })
    }
}
