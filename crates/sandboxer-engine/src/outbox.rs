//! Delivering events: at least once, in order per sandbox and sink, with back-off over days, then as dead letters. Nobody
//! who creates ever waits for a sink.

mod endpoints;
mod fin_hub;
mod guard;
mod hub;
mod kinds;
mod post;
mod replay;
mod rounds;
mod schedule;
mod sign;
mod state_hub;
mod webhook;

use async_trait::async_trait;
use sandboxer_core::event::Event;
use sandboxer_core::{Dur, Error, ErrorKind, Result};
use sandboxer_store::Outlet;

pub use endpoints::{NewWebhook, NewWebhookView, SecretView, WebhookAnswer, WebhookView};
pub use fin_hub::{FIN_HUB_SINK, FinHub, fin_hub_outlet};
pub use guard::PrivateTargets;
pub use replay::ReplayRequest;
pub use schedule::Schedule;
pub use state_hub::{STATE_HUB_SINK, StateHub};
pub(crate) use webhook::Post;

/// Where events go.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// The name under which deliveries are queued.
    fn name(&self) -> &str;

    /// Which events are queued for it: all, unless it says otherwise.
    fn outlet(&self) -> Outlet {
        self.name().into()
    }

    /// When to try again.
    fn schedule(&self) -> Schedule {
        schedule::HUB
    }

    /// Returns when the sink has the event. Called again with the same event after any error.
    async fn deliver(&self, event: &Event) -> Result<(), Undelivered>;
}

/// Why a sink does not have an event.
#[derive(Debug)]
pub struct Undelivered {
    pub error: Error,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// When the sink wants to be asked again.
    pub retry_after: Option<Dur>,
    /// The sink says that it is no more.
    pub gone: bool,
}

impl Undelivered {
    fn failed(why: impl Into<String>) -> Self {
        Error::new(ErrorKind::BackendFailed, why).into()
    }
}

impl From<Error> for Undelivered {
    fn from(error: Error) -> Self {
        Self { error, status: None, retry_after: None, gone: false }
    }
}
