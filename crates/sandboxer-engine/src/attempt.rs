//! From offer to offer until one keeps its word.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandboxer_core::extension::{Handle, Reachability};
use sandboxer_core::route::Backend;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_store::Stored;
use tokio::time::Instant;

use crate::Engine;
use crate::establish::Making;

/// What was made, and how it is reached.
pub(crate) type Ready = (Handle, Reachability);

/// What came of one try, and how long it took.
pub(crate) struct Tried {
    pub(crate) outcome: Result<Ready>,
    pub(crate) took: Duration,
}

/// What a create notes about itself on its way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    setup_begun: Arc<AtomicBool>,
    sample: Arc<Mutex<Option<(Backend, Duration)>>>,
}

impl Notes {
    /// From here on a second provision is not the same as the first.
    pub(crate) fn begin_setup(&self) {
        self.setup_begun.store(true, Ordering::Release);
    }

    pub(crate) fn has_begun_setup(&self) -> bool {
        self.setup_begun.load(Ordering::Acquire)
    }

    fn keep(&self, backend: Backend, took: Duration) {
        *self.sample.lock().unwrap_or_else(PoisonError::into_inner) = Some((backend, took));
    }

    fn take(&self) -> Option<(Backend, Duration)> {
        self.sample.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Where the row says that the sandbox is.
pub(crate) fn backend_of(stored: &Stored) -> Backend {
    let sandbox = &stored.record.sandbox;
    Backend { extension: sandbox.extension.clone(), host: sandbox.host.clone() }
}

impl Engine {
    /// On the first offer that keeps its word. Only a fault of the backend moves on to the next one.
    pub(crate) async fn establish_somewhere(&self, stored: &mut Stored, making: &Making) -> Result<Ready> {
        loop {
            let knock = self.knock(stored).await;
            let tried = self.try_offer(stored, making).await;
            let ready = match tried.outcome {
                Ok(ready) => Some(ready),
                Err(error) => Box::pin(self.reroute(stored, making, error, tried.took, knock)).await?,
            };
            if let Some(ready) = ready {
                making.notes.keep(backend_of(stored), tried.took);
                return Ok(ready);
            }
        }
    }

    /// The row says that it is ready: what was learned on the way is worth keeping.
    pub(crate) fn note_made(&self, making: &Making, profile: &str) {
        if let Some((backend, took)) = making.notes.take() {
            self.note_ready(backend, profile.to_owned(), took);
        }
    }

    /// One try, in its turn and within its time.
    pub(crate) async fn attempt(&self, stored: &Stored, making: &Making) -> Tried {
        let slot = self.inner.create_slots.acquire().await.map_err(|source| {
            Error::new(ErrorKind::Internal, "the create queue is closed").with_source(source)
        });
        let started = Instant::now();
        let outcome = match slot {
            Err(error) => Err(error),
            Ok(_slot) => self.attempt_now(stored, making).await,
        };
        Tried { outcome, took: started.elapsed() }
    }

    async fn attempt_now(&self, stored: &Stored, making: &Making) -> Result<Ready> {
        let timeout = self.provision_limit(stored)?;
        let sandbox = &stored.record.sandbox;
        let entry = self.enter(stored, &sandbox.profile).await?;
        let work = self.provision(stored, making);
        let outcome = tokio::time::timeout(timeout.as_std(), work).await.unwrap_or_else(|_| {
            // What the profile wants done inside is nobody's fault but its own.
            Err(if making.notes.has_begun_setup() {
                Error::new(ErrorKind::SetupFailed, format!("the setup commands did not end within {timeout}"))
                    .with_hint("each of them must end by itself; services belong into the background")
            } else {
                Error::new(ErrorKind::Timeout, format!("the sandbox was not ready within {timeout}"))
            })
        });
        // Ready or at fault: that will be recorded. Anything else says nothing about the backend.
        if outcome.as_ref().err().is_none_or(|error| error.class().is_some()) {
            entry.done();
        }
        outcome
    }
}
