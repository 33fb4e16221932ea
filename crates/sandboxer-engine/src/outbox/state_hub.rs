//! The State Hub: it gets every event.

use async_trait::async_trait;
use sandboxer_core::Result;
use sandboxer_core::env_vars::EnvVars;
use sandboxer_core::event::Event;

use super::hub::{self, Hub};
use super::{Sink, Undelivered};

/// The name under which deliveries to the hub are queued.
pub const STATE_HUB_SINK: &str = "state-hub";

const TITLE: &str = "State Hub";

pub struct StateHub(Hub);

impl StateHub {
    pub fn new(url: &str) -> Result<Self> {
        Hub::new(TITLE, EnvVars::SANDBOXER_STATE_HUB_URL, url).map(Self)
    }

    /// Whether it can be made of this URL, without making it.
    pub fn check(url: &str) -> Result<()> {
        hub::check_url(TITLE, EnvVars::SANDBOXER_STATE_HUB_URL, url).map(drop)
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
