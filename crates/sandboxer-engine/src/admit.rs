//! The door to a backend: limits of ours, and the one create that may try a backend that failed.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use sandboxer_core::route::{Backend, BreakerState, ExtensionLimits, Health, Refusal};
use sandboxer_core::{Dur, Error, ErrorKind, Result};
use sandboxer_store::Stored;

use crate::Engine;
use crate::attempt::backend_of;
use crate::placement::Scene;
use crate::plan::rest;
use crate::reroute::has_own_key;

/// How long a try may take before somebody else may try as well.
const PROBE: Dur = Dur::from_secs(120);
/// Marks a refusal of ours, which says nothing about the backend.
const OURS: (&str, &str) = ("refused_by", "limit");

/// Extensions with limits whose older sandboxes were counted.
#[derive(Debug, Default)]
pub(crate) struct Counted(Mutex<BTreeSet<String>>);

/// A create that was let in. Gives the right to try back when nothing was learned.
pub(crate) struct Entry {
    probing: Option<(Engine, Backend)>,
}

impl Entry {
    /// What became of it is or will be recorded, which ends the try.
    pub(crate) fn done(mut self) {
        self.probing = None;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some((engine, backend)) = self.probing.take() else { return };
        let tasks = engine.inner.memory.tasks.clone();
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        tasks.spawn(async move {
            if let Err(error) = engine.inner.store.route_unprobe(&backend).await {
                tracing::warn!(error = ?error, "a try could not be given back; it ends by itself");
            }
            engine.inner.memory.forget_all();
        });
    }
}

/// Whether it was we who refused.
pub(crate) fn is_ours(error: &Error) -> bool {
    error.context().iter().any(|(key, value)| (*key, value.as_str()) == OURS)
}

fn refused(why: Refusal, now: Timestamp) -> Error {
    let error = Error::new(ErrorKind::NoBackend, why.reason).with_context(OURS.0, OURS.1).without_effect();
    match rest(why.again_at.into_iter(), now) {
        Some(rest) => error.with_retry_after(rest),
        None => error,
    }
}

impl Engine {
    /// The limits of an extension, where there are any.
    pub(crate) fn limits_of(&self, extension: &str) -> Option<&ExtensionLimits> {
        self.inner.extension_limits.get(extension).filter(|limits| limits.is_limited())
    }

    /// Which limit one more sandbox would break, as the scene has it.
    pub(crate) fn is_full(&self, scene: &Scene, extension: &str) -> Option<Refusal> {
        self.limits_of(extension)?.refuse(scene.slots.get(extension).copied()?, self.now())
    }

    /// Lets a create in, or says why not; then nothing was done there.
    pub(crate) async fn enter(&self, stored: &Stored, profile: &str) -> Result<Entry> {
        let (id, backend) = (stored.record.id(), &backend_of(stored));
        if let Some(limits) = self.limits_of(&backend.extension) {
            self.count_older(&backend.extension).await?;
            let take = self.inner.store.route_slot_take(&backend.extension, id, limits, self.now());
            if let Some(why) = take.await? {
                return Err(refused(why, self.now()));
            }
        }
        let past = self.past(profile).await;
        let past = if has_own_key(stored) { past.with_own_key_at(&backend.extension) } else { past };
        match Health::of(past.breakers(backend), self.now()) {
            None => return Ok(Entry { probing: None }),
            // It failed for somebody else since the decision was made.
            Some(health) if health.state == BreakerState::Open => {
                let reason = format!("it is left alone for a while: {}", health.breaker.reason);
                let why = Refusal { reason, again_at: health.breaker.until };
                return Err(refused(why, self.now()));
            }
            Some(_) => {}
        }
        let now = self.now();
        let may = self.inner.store.route_probe(backend, PROBE.after(now), now).await?;
        self.inner.memory.forget_all();
        if !may {
            return Err(refused(Refusal::full(now, "somebody else is trying it again"), now));
        }
        Ok(Entry { probing: Some((self.clone(), backend.clone())) })
    }

    /// Sandboxes that were there before the limit count too; once is enough, since newer ones are counted as they come.
    pub(crate) async fn count_older(&self, extension: &str) -> Result<()> {
        let counted = &self.inner.counted;
        let is_new = {
            let known = counted.0.lock().unwrap_or_else(PoisonError::into_inner);
            !known.contains(extension)
        };
        if is_new {
            self.inner.store.route_slots_adopt(extension).await?;
            counted.0.lock().unwrap_or_else(PoisonError::into_inner).insert(extension.to_owned());
        }
        Ok(())
    }
}
