//! Commands about endpoints that events are posted to, and about sending events again.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use sandboxer_core::Dur;
use sandboxer_store::EventPattern;

use super::value;

#[derive(Debug, Subcommand)]
pub(crate) enum WebhooksCommand {
    /// List endpoints with what waits for them and what was given up
    #[command(visible_alias = "ls", after_help = "Examples:\n  sandboxer webhooks list")]
    List,
    /// Show one endpoint
    #[command(after_help = "Examples:\n  sandboxer webhooks get whk_…")]
    Get {
        /// The webhook
        #[arg(value_name = "WEBHOOK")]
        id: String,
    },
    /// Post events to a URL from now on, and print the secret that signs them, once
    #[command(after_help = "Examples:\n  \
        sandboxer webhooks add https://example.org/hooks/sandboxer\n  \
        sandboxer webhooks add https://example.org/hooks --event 'sandbox.*' --event meter.recorded --description billing")]
    Add(WebhooksAddArgs),
    /// Forget endpoints with what waits for them
    #[command(visible_alias = "rm", after_help = "Examples:\n  sandboxer webhooks remove whk_…")]
    Remove {
        /// The webhooks
        #[arg(value_name = "WEBHOOK", required = true)]
        ids: Vec<String>,
    },
    /// Make a new secret and print it, once; the old one signs too for a while
    #[command(
        after_help = "Examples:\n  sandboxer webhooks rotate whk_…\n  sandboxer webhooks rotate whk_… --overlap 1h"
    )]
    Rotate {
        /// The webhook
        #[arg(value_name = "WEBHOOK")]
        id: String,
        /// How long the old secret signs beside the new one; a day unless it is given
        #[arg(long, value_name = "DURATION", value_parser = value::dur)]
        overlap: Option<Dur>,
    },
    /// Send to an endpoint again that was disabled
    #[command(after_help = "Examples:\n  sandboxer webhooks enable whk_…")]
    Enable {
        /// The webhook
        #[arg(value_name = "WEBHOOK")]
        id: String,
    },
    /// Send nothing to an endpoint any more; what waits for it can be replayed later
    #[command(after_help = "Examples:\n  sandboxer webhooks disable whk_…")]
    Disable {
        /// The webhook
        #[arg(value_name = "WEBHOOK")]
        id: String,
    },
    /// Send a test event now and tell what came back; exits with 1 if it was not taken
    #[command(after_help = "Examples:\n  sandboxer webhooks test whk_…")]
    Test {
        /// The webhook
        #[arg(value_name = "WEBHOOK")]
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct WebhooksAddArgs {
    /// Where to: https, and no private address unless SANDBOXER_WEBHOOK_ALLOW_PRIVATE allows it
    #[arg(value_name = "URL")]
    pub(crate) url: String,

    /// Which events: `sandbox.*`, `sandbox.ready`, `meter.*`; may be repeated, without it all
    #[arg(long, value_name = "PATTERN", value_parser = value::pattern)]
    pub(crate) event: Vec<EventPattern>,

    /// What it is for
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EventsCommand {
    /// Deliver events again: given-up ones, single ones, or all since a moment
    #[command(after_help = "Examples:\n  \
        sandboxer events replay --sink whk_…                      what was given up for it\n  \
        sandboxer events replay --sink fin-hub --since 2026-11-15  everything since then\n  \
        sandboxer events replay --event evt_… --event evt_…       to every sink that wants them\n  \
        sandboxer events replay --all                             everything that was given up")]
    Replay(ReplayArgs),
    /// List deliveries that were given up, newest first
    #[command(
        after_help = "Examples:\n  sandboxer events dead\n  sandboxer events dead --sink state-hub --json"
    )]
    Dead {
        /// Only of this sink: state-hub, fin-hub or a webhook
        #[arg(long, value_name = "SINK")]
        sink: Option<String>,
        /// At most so many; without it all of them
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        limit: Option<u32>,
    },
    /// List the sinks that events are queued for, with what waits and what was given up
    #[command(after_help = "Examples:\n  sandboxer events sinks\n  sandboxer events sinks --json")]
    Sinks,
    /// Queue nothing for a hub any more, and drop what waits for it
    ///
    /// A hub is known to every process of a store once one of them was told its URL. Take the URL out of the
    /// configuration first; webhooks are removed with `webhooks remove`.
    #[command(after_help = "Examples:\n  sandboxer events forget fin-hub")]
    Forget {
        /// state-hub or fin-hub
        #[arg(value_name = "SINK")]
        sink: String,
    },
}

#[derive(Debug, Args)]
#[group(id = "replayed", required = true, multiple = true, args = ["sink", "event", "delivery", "all"])]
pub(crate) struct ReplayArgs {
    /// Only to this sink: state-hub, fin-hub or a webhook
    #[arg(long, value_name = "SINK")]
    pub(crate) sink: Option<String>,

    /// With --sink: everything since this moment or day, delivered or not
    #[arg(long, value_name = "TIME", value_parser = value::moment, requires = "sink", conflicts_with = "event")]
    pub(crate) since: Option<Timestamp>,

    /// This event, delivered or not; may be repeated
    #[arg(long, value_name = "EVENT")]
    pub(crate) event: Vec<String>,

    /// This given-up delivery, by its number in `events dead`; may be repeated
    #[arg(long, value_name = "N", conflicts_with_all = ["sink", "event", "since"])]
    pub(crate) delivery: Vec<i64>,

    /// Everything that was given up
    #[arg(long, conflicts_with_all = ["sink", "event", "delivery"])]
    pub(crate) all: bool,
}
