//! The warm pool: a few sandboxes made in advance, without identity, handed out by a rename.
//!
//! They are of the shape (limits, host name) that was asked for last, hang on this process by their launch connection,
//! and end with it. A create that finds none, or another shape, launches one as ever.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandboxer_runtime::{Launched, Runtime, SandboxSpec};

/// What the names of warm sandboxes start with; no sandbox of a store does.
const PREFIX: &str = "warm-";
/// A warm sandbox that nobody wanted for this long ends by itself.
const LIFETIME: Duration = Duration::from_secs(600);
/// How much of that must be left when it is handed out.
const MARGIN_MS: u64 = 5_000;
/// The refill waits for a quiet moment: the command that comes after a create should not compete with it.
const QUIET: Duration = Duration::from_millis(15);

/// Cheap to clone; all clones are one.
#[derive(Clone)]
pub(crate) struct WarmPool {
    runtime: Runtime,
    size: usize,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// What the next ones are made like.
    shape: Option<SandboxSpec>,
    ready: Vec<Ready>,
    refilling: bool,
    made: u64,
    taken: u64,
}

struct Ready {
    launched: Launched,
    deadline_unix_ms: u64,
}

impl WarmPool {
    pub(crate) fn new(runtime: Runtime, size: usize) -> Self {
        Self { runtime, size, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A warm sandbox turned into the one that was asked for; `None` when there is none that fits.
    pub(crate) async fn take(&self, spec: &SandboxSpec) -> Option<Launched> {
        // Mounts are looked at when a sandbox is made; nothing is mounted in advance.
        if self.size == 0 || !spec.mounts.is_empty() || !spec.layers.is_empty() || spec.workspace_read_only {
            return None;
        }
        let warm = self.pick(spec);
        self.refill_soon();
        let warm = warm?;
        let warm_id = warm.id.clone();
        let adopted = self.runtime.adopt(warm, spec.clone()).await.ok();
        if adopted.is_none() {
            // It ended in the meantime, perhaps without its own cleaning up. The caller launches its own.
            let _ = self.runtime.sweep(&warm_id);
        }
        adopted
    }

    /// The oldest one of this shape. Another shape empties the pool: the dropped connections end what was in it.
    fn pick(&self, spec: &SandboxSpec) -> Option<Launched> {
        let mut state = self.state();
        state.taken += 1;
        if !state.shape.as_ref().is_some_and(|shape| shape.has_shape_of(spec)) {
            state.ready.clear();
            state.shape = Some(spec.clone());
            return None;
        }
        let soon = now_unix_ms().saturating_add(MARGIN_MS);
        state.ready.retain(|ready| ready.deadline_unix_ms > soon);
        if state.ready.is_empty() { None } else { Some(state.ready.remove(0).launched) }
    }

    fn refill_soon(&self) {
        {
            let mut state = self.state();
            if state.refilling {
                return;
            }
            state.refilling = true;
        }
        let pool = self.clone();
        tokio::spawn(async move {
            pool.refill().await;
            pool.state().refilling = false;
        });
    }

    /// A supervisor that was killed leaves its folder, and no row of a store tells of a warm one.
    pub(crate) fn sweep_the_dead(&self) {
        for found in self.runtime.list().unwrap_or_default() {
            if found.id.starts_with(PREFIX) && !found.alive {
                let _ = self.runtime.sweep(&found.id);
            }
        }
    }

    /// Makes one after the other until the pool is full, resting while creates come in.
    async fn refill(&self) {
        loop {
            let before = self.state().taken;
            tokio::time::sleep(QUIET).await;
            if self.state().taken != before {
                continue;
            }
            let Some(spec) = self.next_spec() else { return };
            let deadline_unix_ms = spec.deadline_unix_ms;
            let made_like = spec.clone();
            // What cannot be made in advance is made when it is asked for, and its error is told then.
            let Ok(launched) = self.runtime.launch(spec).await else { return };
            let mut state = self.state();
            if state.shape.as_ref().is_some_and(|shape| shape.has_shape_of(&made_like)) {
                state.ready.push(Ready { launched, deadline_unix_ms });
            }
        }
    }

    /// The next one to make; `None` when the pool is full.
    fn next_spec(&self) -> Option<SandboxSpec> {
        let mut state = self.state();
        if state.ready.len() >= self.size {
            return None;
        }
        let shape = state.shape.as_ref()?;
        let lifetime_ms = u64::try_from(LIFETIME.as_millis()).unwrap_or(u64::MAX);
        let mut spec = SandboxSpec::new(String::new(), LIFETIME);
        spec.hostname.clone_from(&shape.hostname);
        spec.limits = shape.limits;
        spec.allow_degraded = shape.allow_degraded;
        spec.deadline_unix_ms = now_unix_ms().saturating_add(lifetime_ms);
        spec.warm = true;
        state.made += 1;
        spec.id = format!("{PREFIX}{}-{}", std::process::id(), state.made);
        Some(spec)
    }
}

fn now_unix_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default()
}
