//! What every handler shares.

use std::sync::Arc;

use sandboxer_core::Result;
use sandboxer_engine::Engine;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::KeysKnown;
use crate::limits::{Buckets, Limits};
use crate::metrics::Metrics;

/// The state of the router. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    engine: Engine,
    limits: Limits,
    buckets: Buckets,
    metrics: Metrics,
    keys: KeysKnown,
    event_streams: Arc<Semaphore>,
    /// The server was told to stop: streams without an end of their own end now.
    draining: CancellationToken,
    /// The time to finish is over: everything ends now.
    stopped: CancellationToken,
    /// Connections and what outlives them.
    tasks: TaskTracker,
}

impl App {
    /// Streams end when `draining` is cancelled, as they do when a server stops.
    pub fn new(engine: Engine, limits: Limits, draining: CancellationToken) -> Result<Self> {
        Ok(Self(Arc::new(Inner {
            engine,
            buckets: Buckets::new(limits.requests_per_second),
            metrics: Metrics::new()?,
            keys: KeysKnown::default(),
            event_streams: Arc::new(Semaphore::new(limits.event_streams)),
            limits,
            draining,
            stopped: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })))
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub(crate) fn buckets(&self) -> &Buckets {
        &self.0.buckets
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub(crate) fn keys(&self) -> &KeysKnown {
        &self.0.keys
    }

    pub(crate) fn event_streams(&self) -> &Arc<Semaphore> {
        &self.0.event_streams
    }

    pub(crate) fn draining(&self) -> &CancellationToken {
        &self.0.draining
    }

    pub(crate) fn stopped(&self) -> &CancellationToken {
        &self.0.stopped
    }

    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.0.tasks
    }
}
