//! The lifetime of a sandbox: move its end, or bring about the end of those whose time is over.

use sandboxer_core::event::NewEvent;
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::{Dur, Error, ErrorKind, Result, SandboxId};
use sandboxer_store::{Books, Filter, LeaseChange, Stored, Update};
use serde_json::json;

use crate::caller::Action;
use crate::snapshots::Where;
use crate::{Caller, Engine, fault};

impl Engine {
    /// Moves the end of a sandbox to `duration` from now, within the profile's maximum.
    pub async fn extend_ttl(&self, caller: &Caller, id: SandboxId, duration: Dur) -> Result<Sandbox> {
        if duration == Dur::ZERO {
            return Err(Error::new(ErrorKind::InvalidInput, "an extension of zero would end the sandbox")
                .with_hint("`sandboxer destroy` ends a sandbox now"));
        }
        loop {
            let stored = self.load_usable(caller, id).await?;
            let now = self.now();
            let expires_at = duration.after(now).max(stored.record.sandbox.expires_at);
            self.check_max_ttl(&stored.record.sandbox, expires_at)?;
            let handle = stored.record.handle.clone().ok_or_else(|| {
                Error::new(ErrorKind::Internal, format!("sandbox {id} is usable and has no handle"))
            })?;
            let stored = match self.hold_more(stored, expires_at).await {
                Err(error) if error.kind() == ErrorKind::Conflict => continue,
                other => other?,
            };
            fault::point("engine.extend.after_hold");
            // The backend before the row: one that promises more time than the backend gives would be a lie.
            if let Err(error) = self.extension_of(&stored.record).await?.extend(&handle, expires_at).await {
                self.hold_less(&stored).await;
                return Err(error);
            }
            fault::point("engine.extend.after_effect");
            let mut record = stored.record;
            record.sandbox.expires_at = expires_at;
            let created_at = record.sandbox.created_at;
            record.sandbox.ttl = Dur::from_millis(
                u64::try_from(expires_at.as_millisecond() - created_at.as_millisecond()).unwrap_or_default(),
            );
            let fact = NewEvent::fact("sandbox.ttl_extended", now, json!({ "expires_at": expires_at }));
            let update = Update {
                record,
                expected_version: stored.version,
                steps: Vec::new(),
                facts: vec![fact],
                lease: LeaseChange::Keep,
                books: Books::default(),
            };
            match self.inner.store.update(update).await {
                Err(error) if error.kind() == ErrorKind::Conflict => continue,
                other => {
                    fault::point("engine.extend.after_extended");
                    return Ok(other?.record.sandbox);
                }
            }
        }
    }

    /// The money for a longer life comes before the longer life.
    async fn hold_more(&self, stored: Stored, until: jiff::Timestamp) -> Result<Stored> {
        let mut record = stored.record.clone();
        let money = self.raise_hold(&mut record, until)?;
        if money.books.is_empty() {
            return Ok(stored);
        }
        let update = Update {
            record,
            expected_version: stored.version,
            steps: Vec::new(),
            facts: money.facts,
            lease: LeaseChange::Keep,
            books: money.books,
        };
        self.update_paid(update).await
    }

    /// A longer life that did not come about is not paid for. If this fails, the end gives it back.
    pub(crate) async fn hold_less(&self, stored: &Stored) {
        let mut record = stored.record.clone();
        let until = record.sandbox.expires_at;
        let Ok(money) = self.lower_hold(&mut record, until) else { return };
        if money.books.is_empty() {
            return;
        }
        let update = Update {
            record,
            expected_version: stored.version,
            steps: Vec::new(),
            facts: money.facts,
            lease: LeaseChange::Keep,
            books: money.books,
        };
        if let Err(error) = self.inner.store.update(update).await {
            tracing::debug!(error = ?error, "a hold stays larger than it need be until the end");
        }
    }

    /// The whole life, from creation on, stays within the maximum that the profile allows today.
    fn check_max_ttl(&self, sandbox: &Sandbox, expires_at: jiff::Timestamp) -> Result<()> {
        let max = self.inner.catalog.get(&sandbox.profile)?.profile.ttl.max;
        if expires_at <= max.after(sandbox.created_at) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::TtlAboveMax,
            format!(
                "the sandbox would live longer than the maximum of {}, which is {max} from its creation",
                sandbox.profile
            ),
        )
        .with_hint("create a new one, or use a profile with a higher `ttl.max`"))
    }

    /// The sandboxes whose time is over; with `apply` they are brought to their end.
    pub async fn expire(&self, caller: &Caller, apply: bool) -> Result<Vec<Sandbox>> {
        caller.require(Action::Operate)?;
        let mut out = Vec::new();
        for stored in self.inner.store.overdue(self.now()).await? {
            if !apply {
                out.push(stored.record.sandbox);
                continue;
            }
            match self.settle_if_needed(stored).await {
                Ok(settled) => out.push(settled.record.sandbox),
                Err(error) => tracing::error!(error = ?error, "an expired sandbox could not be ended"),
            }
        }
        Ok(out)
    }

    /// One page, newest first, brought up to date first.
    pub async fn list(
        &self,
        caller: &Caller,
        mut filter: Filter,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<Sandbox>> {
        if let Some(key) = caller.visible_key() {
            filter.owner_key = Some(key);
        }
        self.inner.store.list(&filter, cursor, limit).await
    }

    /// Settles every living row of the engine's own machine, so that a listing tells what is and not what was. Other
    /// hosts are not asked: a server does so by itself, and a command when it is about that sandbox.
    pub async fn refresh(&self) -> Result<()> {
        for stored in self.inner.store.living().await? {
            if stored.record.sandbox.host != sandboxer_core::host::LOCAL {
                continue;
            }
            let id = stored.record.id();
            if let Err(error) = self.settle_if_needed(stored).await {
                tracing::warn!(error = ?error, sandbox = %id, "a sandbox could not be brought up to date");
            }
        }
        self.settle_snapshots(Where::Here).await
    }
}
