//! What is remembered of creates: how long they took, and who failed. Read once a second at most; written after the
//! caller has its answer, or before the next offer is tried.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandboxer_core::host::LOCAL;
use sandboxer_core::route::{Backend, Breaker, Digest};
use sandboxer_core::{Class, Dur, Error};
use sandboxer_store::RouteFailure;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::Engine;

/// How long what was read is good for; what this process learns itself counts at once.
const FRESH: Duration = Duration::from_secs(1);
/// Profiles whose past is kept in memory.
const MOST_VIEWS: usize = 256;

/// What one decision needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    latency: HashMap<Backend, Digest>,
    breakers: HashMap<Backend, Vec<Breaker>>,
}

impl Past {
    pub(crate) fn latency(&self, backend: &Backend) -> Option<Digest> {
        self.latency.get(backend).copied()
    }

    pub(crate) fn breakers(&self, backend: &Backend) -> &[Breaker] {
        self.breakers.get(backend).map(Vec::as_slice).unwrap_or_default()
    }

    /// The same for somebody with a key of their own there: what an account is refused for says nothing about another.
    pub(crate) fn with_own_key_at(self: &Arc<Self>, extension: &str) -> Arc<Self> {
        let is_of_account =
            |breaker: &Breaker| matches!(breaker.class, Class::Auth | Class::Payment | Class::Quota);
        let concerns = |(backend, breakers): (&Backend, &Vec<Breaker>)| {
            backend.extension == extension && breakers.iter().any(is_of_account)
        };
        if !self.breakers.iter().any(concerns) {
            return self.clone();
        }
        let mut past = Self::clone(self);
        for (_, breakers) in past.breakers.iter_mut().filter(|(backend, _)| backend.extension == extension) {
            breakers.retain(|breaker| !is_of_account(breaker));
        }
        Arc::new(past)
    }
}

/// The part of it that this process has at hand, and its writes that are under way.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    views: Mutex<HashMap<String, (Instant, Arc<Past>)>>,
    pub(crate) tasks: TaskTracker,
    /// Sandboxes that lost a race and are taken down.
    pub(crate) dismissed: TaskTracker,
}

impl Memory {
    fn views(&self) -> MutexGuard<'_, HashMap<String, (Instant, Arc<Past>)>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fresh(&self, profile: &str) -> Option<Arc<Past>> {
        let views = self.views();
        views.get(profile).filter(|(at, _)| at.elapsed() < FRESH).map(|(_, past)| past.clone())
    }

    fn keep(&self, profile: &str, past: Arc<Past>) {
        let mut views = self.views();
        if views.len() >= MOST_VIEWS {
            views.clear();
        }
        views.insert(profile.to_owned(), (Instant::now(), past));
    }

    /// A create became ready there.
    fn learned(&self, backend: &Backend, profile: &str, digest: Digest) {
        let mut views = self.views();
        if views.values().any(|(_, past)| past.breakers.contains_key(backend)) {
            views.clear();
        } else if let Some((_, past)) = views.get_mut(profile) {
            Arc::make_mut(past).latency.insert(backend.clone(), digest);
        }
    }

    pub(crate) fn forget_all(&self) {
        self.views().clear();
    }
}

impl Engine {
    /// What is remembered for a profile. A store that does not answer makes nobody refuse anybody.
    pub(crate) async fn past(&self, profile: &str) -> Arc<Past> {
        if let Some(past) = self.inner.memory.fresh(profile) {
            return past;
        }
        let read = match self.inner.store.route_past(profile).await {
            Ok(read) => read,
            Err(error) => {
                tracing::warn!(error = ?error, "the past of routes could not be read");
                return Arc::default();
            }
        };
        let mut past = Past { latency: read.latency.into_iter().collect(), ..Past::default() };
        for (backend, breaker) in read.breakers {
            past.breakers.entry(backend).or_default().push(breaker);
        }
        let past = Arc::new(past);
        self.inner.memory.keep(profile, past.clone());
        past
    }

    /// A create became ready: nobody waits for this to be written.
    pub(crate) fn note_ready(&self, backend: Backend, profile: String, took: Duration) {
        let took = Dur::from_millis(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        let engine = self.clone();
        self.inner.memory.tasks.spawn(async move {
            match engine.inner.store.route_ready(&backend, &profile, took, engine.now()).await {
                Ok(digest) => engine.inner.memory.learned(&backend, &profile, digest),
                Err(error) => tracing::warn!(error = ?error, "the time of a create could not be recorded"),
            }
        });
    }

    /// A create failed by the backend's fault. This machine is never left alone: whoever fails there says so.
    pub(crate) async fn note_failed(&self, backend: &Backend, error: &Error) {
        let Some(class) = error.class() else { return };
        if self.is_own_machine(backend) {
            return;
        }
        let reason = error.chain().join(": ");
        let failure = RouteFailure { class, reason: &reason, retry_after: error.retry_after() };
        if let Err(error) = self.inner.store.route_failed(backend, &failure, self.now()).await {
            tracing::warn!(error = ?error, "the failure of a backend could not be recorded");
        }
        self.inner.memory.forget_all();
    }

    fn is_own_machine(&self, backend: &Backend) -> bool {
        let is_own = |extension: Arc<dyn sandboxer_core::Extension>| {
            let capability = extension.describe().capability;
            capability.self_hosted && capability.host_local
        };
        backend.host == LOCAL && self.inner.registry.get(&backend.extension).is_ok_and(is_own)
    }

    /// Waits until everything that was learned is written and everything that was superfluous is gone. For a process
    /// that ends after one command.
    pub async fn idle(&self) {
        self.noted().await;
        drain(&self.inner.memory.dismissed).await;
    }

    /// Waits until everything that was learned is written, and for nothing else.
    pub async fn noted(&self) {
        drain(&self.inner.memory.tasks).await;
    }
}

async fn drain(tasks: &TaskTracker) {
    tasks.close();
    tasks.wait().await;
    tasks.reopen();
}
