//! A backend that fails while a sandbox is being made: it is left alone for a while, and the next offer is taken.
//!
//! The row always names the backend on which something may exist. It moves on only when the old one is clean, and it is
//! written before anything is made on the new one. A create that timed out may have had its effect all the same: it is
//! looked up by its tag and taken over if it lives.

use std::time::Duration;

use sandboxer_core::error::Class;
use sandboxer_core::event::NewEvent;
use sandboxer_core::extension::{CleanupReport, Extension};
use sandboxer_core::host::{HostAccess, HostSign, LOCAL};
use sandboxer_core::route::{Attempt, AttemptOutcome, Backend, Health, Refusal};
use sandboxer_core::sandbox::SandboxRecord;
use sandboxer_core::tariff::ProviderKey;
use sandboxer_core::{Dur, Error, ErrorKind, Result, Retry};
use sandboxer_store::{LeaseChange, Stored, Update};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::admit::is_ours;
use crate::attempt::{Ready, backend_of};
use crate::establish::Making;
use crate::placement::is_hosts_fault;
use crate::plan::{explained, rest};
use crate::{Engine, fault};

/// How long a host may take to accept a connection.
const KNOCK: Duration = Duration::from_secs(5);
/// How long the look for a create that timed out may take, and then its takeover.
const LOOK: Dur = Dur::from_secs(15);
const TAKEOVER: Dur = Dur::from_secs(30);

/// Whether a host answered when the work on it began.
pub(crate) struct Knock(Option<JoinHandle<bool>>);

impl Knock {
    /// It did not: whatever was asked of it then cannot have had an effect.
    async fn unanswered(self) -> bool {
        match self.0 {
            Some(task) => !task.await.unwrap_or(true),
            None => false,
        }
    }
}

impl Engine {
    /// Knocks at a host that is reached by SSH, while other work goes on.
    pub(crate) async fn knock(&self, stored: &Stored) -> Knock {
        if stored.record.sandbox.host == LOCAL {
            return Knock(None);
        }
        let host = match self.book().get(&stored.record.sandbox.host).await {
            Ok(record) => record.host,
            Err(_) => return Knock(None),
        };
        let HostAccess::Ssh(ssh) = host.access else { return Knock(None) };
        Knock(Some(tokio::spawn(async move {
            let address = (ssh.address.trim_matches(['[', ']']).to_owned(), ssh.port);
            matches!(tokio::time::timeout(KNOCK, TcpStream::connect(address)).await, Ok(Ok(_)))
        })))
    }

    /// After a failure that is the backend's: takes over what a time-out left alive, or takes the next offer, so that the
    /// row names another backend. The error comes back when the request is at fault, when there is no other offer, or
    /// when the old backend is not clean.
    pub(crate) async fn reroute(
        &self,
        stored: &mut Stored,
        making: &Making,
        error: Error,
        took: Duration,
        knock: Knock,
    ) -> Result<Option<Ready>> {
        if error.class().is_none() {
            return Err(error);
        }
        let backend = backend_of(stored);
        if error.kind() == ErrorKind::Timeout
            && let Some(ready) = self.take_over(stored, making, &error, took).await?
        {
            let late = Attempt { outcome: AttemptOutcome::Adopted, ..attempt(&backend, &error, took) };
            stored.record.sandbox.route.attempts.push(late);
            return Ok(Some(ready));
        }
        // Kept in any case: whoever ends the sandbox now writes down what was tried.
        stored.record.sandbox.route.attempts.push(attempt(&backend, &error, took));
        self.blame(&backend, &error, has_own_key(stored)).await;
        let said_so = error.had_no_effect();
        let is_untouched = said_so
            || match error.kind() {
                // Refused before the first word was said to it.
                ErrorKind::HostKeyRefused => true,
                ErrorKind::Unreachable => knock.unanswered().await,
                _ => false,
            };
        let error = if is_untouched && !said_so { error.without_effect() } else { error };
        if stored.record.sandbox.route.untried().is_none() {
            return Err(Box::pin(self.none_left(stored, error)).await);
        }
        if !is_untouched {
            self.clean_up_for_next(stored, &error).await?;
        }
        if let Err(left) = self.remove_hedge(stored).await {
            tracing::warn!(sandbox = %stored.record.id(), error = ?left, "not rerouted: the second backend is not clean");
            return Err(error);
        }
        fault::point("engine.reroute.after_teardown");
        self.move_on(stored, error).await?;
        Ok(None)
    }

    /// Everybody who was accepted failed: what each of them said, and when it is worth asking again. A fault of the
    /// request would have ended it before.
    async fn none_left(&self, stored: &Stored, last: Error) -> Error {
        let sandbox = &stored.record.sandbox;
        let route = &sandbox.route;
        // Whoever asked for this one backend wants to hear what it said. Everybody else asked for a sandbox, and is told
        // that there is none and why.
        if route.pinned && route.offers.len() < 2 && !is_ours(&last) {
            return last;
        }
        let mut told: Vec<String> = route.attempts.iter().map(Attempt::told).collect();
        let refused = route.offers.iter().filter(|offer| !offer.accepted);
        told.extend(refused.map(|offer| format!("{}: {}", offer.name(), offer.reason)));
        let past = self.past(&sandbox.profile).await;
        let ends = route.offers.iter().filter_map(|offer| match offer.accepted {
            true => Health::of(past.breakers(&offer.backend()), self.now())?.breaker.until,
            false => offer.again_at,
        });
        let again = rest(ends, self.now()).into_iter().chain(last.retry_after()).min();
        // They were to blame and not the request, so that another time may be better.
        let again = again.or((last.retry() == Retry::Temporary).then_some(Refusal::SOON));
        let message = format!("no backend is left for {} ({})", sandbox.profile, told.join("; "));
        let hint = last.hint().unwrap_or("`sandboxer route explain` shows who is left alone until when");
        let mut error = explained(Error::new(ErrorKind::NoBackend, message).with_hint(hint), route);
        if let Some(again) = again {
            error = error.with_retry_after(again);
        }
        // Whether anything can have been made is as it was with the last one.
        if last.had_no_effect() {
            error = error.without_effect();
        }
        error.with_source(last)
    }

    /// What a failure says about a backend and its host. Limits of ours say nothing.
    pub(crate) async fn blame(&self, backend: &Backend, error: &Error, with_own_key: bool) {
        // A key of the caller's own that is refused or used up is no news for those who use another one.
        let is_the_keys =
            matches!(error.class(), Some(Class::Auth | Class::Payment | Class::Quota)) && with_own_key;
        if is_ours(error) || is_the_keys {
            return;
        }
        if backend.host != LOCAL && is_hosts_fault(error) {
            let reason = format!("{}: {}", backend.extension, error.chain().join(": "));
            self.note_host(&backend.host, &HostSign::Failed { reason }).await;
        }
        self.note_failed(backend, error).await;
    }

    /// The row names the next offer that can be paid for. Nothing exists on the old backend.
    async fn move_on(&self, stored: &mut Stored, error: Error) -> Result<()> {
        loop {
            let Some(next) = stored.record.sandbox.route.untried().cloned() else {
                return Err(Box::pin(self.none_left(stored, error)).await);
            };
            let mut record = stored.record.clone();
            let attempt = record.sandbox.route.attempts.last().cloned();
            record.sandbox.extension = next.extension.clone();
            record.sandbox.host = next.host.clone();
            record.sandbox.route.hedge = None;
            let about = json!({
                "failed": attempt,
                "from": attempt.as_ref().map(|past| past.extension.as_str()),
                "why": attempt.as_ref().map(|past| past.reason.as_str()),
                "extension": next.extension,
                "host": next.host,
            });
            let moved = async {
                let money = self.rebill(&mut record).await?;
                let mut facts = vec![NewEvent::fact("sandbox.rerouted", self.now(), about)];
                facts.extend(money.facts);
                let update = Update {
                    record,
                    expected_version: stored.version,
                    steps: Vec::new(),
                    facts,
                    lease: LeaseChange::Take(self.lease()),
                    books: money.books,
                };
                self.update_paid(update).await
            };
            match moved.await {
                Ok(moved) => {
                    *stored = moved;
                    fault::point("engine.reroute.after_intent");
                    tracing::warn!(error = ?error, sandbox = %stored.record.id(), extension = next.extension,
                        host = next.host, "took the next offer");
                    return Ok(());
                }
                // It costs more than is there: the one after it may cost less.
                Err(refusal) if refusal.kind() == ErrorKind::InsufficientCredits => {
                    let past = attempt_of_refusal(&next.backend(), &refusal);
                    stored.record.sandbox.route.attempts.push(past);
                }
                Err(other) => return Err(other),
            }
        }
    }

    /// A create that timed out and lives all the same. Nothing, where it does not, or cannot be brought to an answer.
    async fn take_over(
        &self,
        stored: &Stored,
        making: &Making,
        error: &Error,
        took: Duration,
    ) -> Result<Option<Ready>> {
        // Half a setup is not repeated: what it did is not known.
        if making.notes.has_begun_setup() {
            return Ok(None);
        }
        let (tag, host) = (stored.record.id().to_string(), &stored.record.sandbox.host);
        let extension = self.extension_of(&stored.record).await?;
        let found = match tokio::time::timeout(LOOK.as_std(), extension.list(host, &tag)).await {
            Ok(Ok(found)) => found,
            _ => return Ok(None),
        };
        if !found.iter().any(|found| found.tag == tag && found.alive) {
            return Ok(None);
        }
        let limit = TAKEOVER.min(self.inner.limits.provision_timeout);
        let again = self.provision(stored, making);
        match tokio::time::timeout(limit.as_std(), again).await {
            Ok(Ok(ready)) => {
                let about = json!({ "late": attempt(&backend_of(stored), error, took) });
                let fact = NewEvent::fact("sandbox.adopted", self.now(), about);
                if let Err(error) = self.inner.store.facts(stored.record.id(), vec![fact]).await {
                    tracing::warn!(error = ?error, sandbox = tag, "a takeover could not be recorded");
                }
                Ok(Some(ready))
            }
            Ok(Err(error)) if error.class().is_none() => Err(error),
            _ => Ok(None),
        }
    }

    /// The old backend must be clean before the row may name another one.
    async fn clean_up_for_next(&self, stored: &Stored, error: &Error) -> Result<()> {
        let place = backend_of(stored);
        let cleaned = async {
            let extension = self.extension_of(&stored.record).await?;
            self.clean_with(&*extension, &place, &stored.record.id().to_string()).await
        };
        cleaned.await.map(drop).map_err(|left| {
            tracing::warn!(sandbox = %stored.record.id(), error = ?left, "not rerouted: the failed backend is not clean");
            error.clone()
        })
    }

    /// Takes down whatever a backend has under the tag of a sandbox that is elsewhere by now. Its bill does not say in
    /// whose account that was: in the workspace's own, if it has one, or else in the platform's.
    pub(crate) async fn clean(&self, backend: &Backend, of: &SandboxRecord) -> Result<()> {
        let (tag, seat) = (of.id().to_string(), self.seat_of(of).await?);
        let own = self.inner.store.own_key(&seat.organisation, &seat.workspace, &backend.extension).await?;
        if own.is_some() {
            let extension = self.extension_in(&backend.extension, Some(&seat)).await?;
            if !self.clean_with(&*extension, backend, &tag).await?.removed.is_empty() {
                return Ok(());
            }
        }
        let extension = self.extension_in(&backend.extension, None).await?;
        match self.clean_with(&*extension, backend, &tag).await {
            // The platform has no account there, and nothing in it.
            Err(error) if own.is_some() && error.class() == Some(Class::Auth) => Ok(()),
            other => other.map(drop),
        }
    }

    async fn clean_with(
        &self,
        extension: &dyn Extension,
        backend: &Backend,
        tag: &str,
    ) -> Result<CleanupReport> {
        let timeout = self.inner.limits.teardown_timeout;
        let work = extension.teardown(&backend.host, tag, None);
        let report = tokio::time::timeout(timeout.as_std(), work).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Timeout, format!("the teardown did not end within {timeout}")))
        })?;
        if report.is_clean() {
            return Ok(report);
        }
        let left: Vec<String> =
            report.left.iter().map(|left| format!("{} ({})", left.what, left.reason)).collect();
        Err(Error::new(ErrorKind::CleanupFailed, format!("the teardown left {}", left.join(", "))))
    }
}

/// What is kept of a try that failed.
pub(crate) fn attempt(backend: &Backend, error: &Error, took: Duration) -> Attempt {
    Attempt {
        extension: backend.extension.clone(),
        host: backend.host.clone(),
        code: error.kind().code().to_owned(),
        reason: error.chain().join(": "),
        class: error.class(),
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        outcome: AttemptOutcome::Failed,
    }
}

/// We could not pay for it; that is not its fault.
pub(crate) fn attempt_of_refusal(backend: &Backend, refusal: &Error) -> Attempt {
    Attempt { class: None, ..attempt(backend, refusal, Duration::ZERO) }
}

/// Whether the provider is asked with a key of the workspace's own.
pub(crate) fn has_own_key(stored: &Stored) -> bool {
    stored.record.bill.as_ref().is_some_and(|bill| bill.terms.provider_key == ProviderKey::Own)
}
