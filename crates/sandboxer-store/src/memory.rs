//! What routing remembers across processes and restarts: how long creates took, who failed how, and how many creates
//! were let through to an extension that has limits.

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::route::{Backend, Breaker, Digest, ExtensionLimits, Refusal, Slots};
use sandboxer_core::{Class, Dur, Result, SandboxId};

/// What a decision needs to know of the past.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoutePast {
    /// How long creates of the profile took.
    pub latency: Vec<(Backend, Digest)>,
    /// Every breaker that is not simply closed.
    pub breakers: Vec<(Backend, Breaker)>,
}

/// One failure of a backend.
#[derive(Clone, Debug)]
pub struct RouteFailure<'a> {
    pub class: Class,
    pub reason: &'a str,
    pub retry_after: Option<Dur>,
}

#[async_trait]
pub trait RouteMemory: Send + Sync {
    /// Everything that a decision about this profile needs, in one read.
    async fn route_past(&self, profile: &str) -> Result<RoutePast>;

    /// A create became ready: one more sample, and whatever was wrong there is over.
    async fn route_ready(
        &self,
        backend: &Backend,
        profile: &str,
        took: Dur,
        now: Timestamp,
    ) -> Result<Digest>;

    /// A create failed there. Ends a try that was under way.
    async fn route_failed(
        &self,
        backend: &Backend,
        failure: &RouteFailure<'_>,
        now: Timestamp,
    ) -> Result<Breaker>;

    /// Takes the right to try a half-open backend until `until`. True without a write where all is closed; false while it
    /// is open or somebody else tries, in whichever process.
    async fn route_probe(&self, backend: &Backend, until: Timestamp, now: Timestamp) -> Result<bool>;

    /// Gives that right back when nothing was learned.
    async fn route_unprobe(&self, backend: &Backend) -> Result<()>;

    /// What of an extension's limits is taken.
    async fn route_slots(&self, extension: &str, limits: &ExtensionLimits, now: Timestamp) -> Result<Slots>;

    /// Lets a create through to an extension, or says which limit it would break. Counted and written in one
    /// transaction, so that any number of processes together keep the limits. Twice for one sandbox is once.
    async fn route_slot_take(
        &self,
        extension: &str,
        sandbox: SandboxId,
        limits: &ExtensionLimits,
        now: Timestamp,
    ) -> Result<Option<Refusal>>;

    /// Sandboxes that lived there before the extension had limits count as well.
    async fn route_slots_adopt(&self, extension: &str) -> Result<()>;

    /// Forgets what was learned before this moment.
    async fn route_forget(&self, before: Timestamp) -> Result<()>;
}
