//! The State Hub: it gets every event.

use async_trait::async_trait;
use sandboxer_core::Result;
use sandboxer_core::env_vars::EnvVars;
use sandboxer_core::event::Event;

use super::hub::Hub;
use super::{Sink, Undelivered};

/// The name under which deliveries to the hub are queued.
pub const STATE_HUB_SINK: &str = "state-hub";

pub struct StateHub(Hub);

impl StateHub {
    pub fn new(url: &str) -> Result<Self> {
        Hub::new("State Hub", EnvVars::SANDBOXER_STATE_HUB_URL, url).map(Self)
    }
}

#[async_trait]
impl Sink for StateHub {
    fn name(&self) -> &str {
        STATE_HUB_SINK
    }

    async fn deliver(&self, event: &Event) -> Result<(), Undelivered> {
        self.0.deliver(event).await
    }
}
