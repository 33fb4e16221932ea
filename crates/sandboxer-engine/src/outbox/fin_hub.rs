//! The billing hub: it gets what was metered and how credits moved, and nothing else.

use async_trait::async_trait;
use sandboxer_core::Result;
use sandboxer_core::env_vars::EnvVars;
use sandboxer_core::event::Event;
use sandboxer_store::Outlet;

use super::hub::{self, Hub};
use super::{Sink, Undelivered};

/// The name under which deliveries to the hub are queued.
pub const FIN_HUB_SINK: &str = "fin-hub";

/// What is queued for the billing hub.
pub fn fin_hub_outlet() -> Outlet {
    let patterns = ["meter.*", "credits.*"].iter().filter_map(|pattern| pattern.parse().ok()).collect();
    Outlet { name: FIN_HUB_SINK.to_owned(), patterns }
}

const TITLE: &str = "billing hub";

pub struct FinHub(Hub);

impl FinHub {
    pub fn new(url: &str) -> Result<Self> {
        Hub::new(TITLE, EnvVars::SANDBOXER_FIN_HUB_URL, url).map(Self)
    }

    /// Whether it can be made of this URL, without making it.
    pub fn check(url: &str) -> Result<()> {
        hub::check_url(TITLE, EnvVars::SANDBOXER_FIN_HUB_URL, url).map(drop)
    }
}

#[async_trait]
impl Sink for FinHub {
    fn name(&self) -> &str {
        FIN_HUB_SINK
    }

    fn outlet(&self) -> Outlet {
        fin_hub_outlet()
    }

    async fn deliver(&self, event: &Event) -> Result<(), Undelivered> {
        self.0.deliver(event).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_money_goes_to_the_billing_hub() {
        let outlet = fin_hub_outlet();
        assert_eq!(outlet.patterns.len(), 2);
        for kind in ["meter.recorded", "credits.held", "credits.settled"] {
            assert!(outlet.wants(&format!("dev.sandboxer.{kind}")), "{kind}");
        }
        assert!(!outlet.wants("dev.sandboxer.sandbox.ready"));
    }
}
