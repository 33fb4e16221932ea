//! Which backend, and at what cost: the options of a create that decide it, `route` and `estimate`.

use clap::{Args, Subcommand};
use sandboxer_core::isolation::IsolationLevel;
use sandboxer_core::profile::{Constraints, Hedge, RouteSpec, Strategy};
use sandboxer_core::request::CreateRequest;
use sandboxer_core::{Dur, Money};

use super::value;

/// What decides between the backends that could do it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Route")]
pub(crate) struct RouteArgs {
    /// How the backends that fit are ranked
    #[arg(long, value_name = "STRATEGY", value_parser = value::strategy())]
    pub(crate) strategy: Option<Strategy>,

    /// This extension first, whatever the strategy; may be repeated, in this order
    #[arg(long, value_name = "EXTENSION")]
    pub(crate) order: Vec<String>,

    /// No other extension than this; may be repeated
    #[arg(long, value_name = "EXTENSION")]
    pub(crate) only: Vec<String>,

    /// Never this extension; may be repeated
    #[arg(long, value_name = "EXTENSION")]
    pub(crate) ignore: Vec<String>,

    /// Try this extension after the profile's own; may be repeated, in this order
    #[arg(long, value_name = "EXTENSION")]
    pub(crate) fallback: Vec<String>,

    /// For `weighted`: how often an extension comes first, beside the others; may be repeated
    #[arg(long, value_name = "EXTENSION=N", value_parser = value::weight)]
    pub(crate) weight: Vec<(String, u32)>,

    /// Start a second one on the next backend when the first is slow, and keep the first that is ready; after its usual
    /// p95, or after this long
    #[arg(long, value_name = "AFTER", num_args = 0..=1, require_equals = true, default_missing_value = "on",
          value_parser = value::hedge)]
    pub(crate) hedge: Option<Hedge>,

    /// The most that an hour may cost, in dollars
    #[arg(long, value_name = "AMOUNT", allow_hyphen_values = true, value_parser = value::bound)]
    pub(crate) max_cost_per_hour: Option<Money>,

    /// At least this isolation
    #[arg(long, value_name = "LEVEL", value_parser = value::isolation())]
    pub(crate) require_isolation: Option<IsolationLevel>,

    /// Only there
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Option<String>,

    /// Only backends with this capability; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) capability: Vec<String>,

    /// Only backends that are not known to take longer to be ready, by their p95
    #[arg(long, value_name = "DURATION", value_parser = value::dur)]
    pub(crate) max_latency: Option<Dur>,

    /// Only where data stays under this label; may be repeated, one is enough
    #[arg(long, value_name = "LABEL")]
    pub(crate) residency: Vec<String>,
}

impl RouteArgs {
    /// The wishes, if there are any.
    pub(crate) fn into_spec(self) -> Option<RouteSpec> {
        let spec = RouteSpec {
            strategy: self.strategy,
            order: self.order,
            only: self.only,
            ignore: self.ignore,
            weights: self.weight.into_iter().collect(),
            fallback: self.fallback,
            hedge: self.hedge,
            constraints: Constraints {
                max_cost_per_hour: self.max_cost_per_hour,
                require_isolation: self.require_isolation,
                region: self.region,
                capabilities: self.capability,
                max_latency: self.max_latency,
                residency: self.residency,
                ..Constraints::default()
            },
        };
        (spec != RouteSpec::default()).then_some(spec)
    }
}

/// What is to run, and where it may.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Profile, with or without a version: profile.agent-dev, profile.agent-dev@1.0.0; without it the canary
    #[arg(long, short, value_name = "PROFILE")]
    pub(crate) profile: Option<String>,

    /// An input of the profile; may be repeated
    #[arg(long, value_name = "K=V", value_parser = value::pair)]
    pub(crate) input: Vec<(String, String)>,

    /// Only this extension
    #[arg(long, value_name = "EXTENSION")]
    pub(crate) extension: Option<String>,

    /// Only this host
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
}

/// What decides about a create before anything is made, beside the route: the same for `create` and `route explain`.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    /// How long it lives, which decides what it costs: 90s, 30m, 2h, 1d
    #[arg(long, value_name = "DURATION", value_parser = value::dur)]
    pub(crate) ttl: Option<Dur>,

    /// Start from this snapshot
    #[arg(long, value_name = "SNAPSHOT")]
    pub(crate) from: Option<String>,

    /// The most that the whole TTL may cost, in dollars
    #[arg(long, value_name = "AMOUNT", allow_hyphen_values = true, value_parser = value::bound)]
    pub(crate) max_cost: Option<Money>,
}

impl RequestArgs {
    /// A request that says this and nothing else.
    pub(crate) fn into_request(self, route: RouteArgs) -> CreateRequest {
        CreateRequest {
            profile: self.place.profile,
            inputs: self.place.input.into_iter().collect(),
            extension: self.place.extension,
            host: self.place.host,
            route: route.into_spec(),
            ttl: self.ttl,
            from: self.from,
            max_cost: self.max_cost,
            ..CreateRequest::default()
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum RouteCommand {
    /// Show every backend with its price, speed, health and the reason for or against it; exits with 7 if none fits
    #[command(after_help = "Examples:\n  \
        sandboxer route explain --profile profile.agent-dev\n  \
        sandboxer route explain --profile profile.burst-sandbox --ttl 1h --strategy lowest-cost --max-cost 0.50\n  \
        sandboxer route explain --profile profile.agent-dev --ignore ext.native --require-isolation microvm --json")]
    Explain(Box<RouteExplainArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct RouteExplainArgs {
    #[command(flatten)]
    pub(crate) request: RequestArgs,

    // The last: its heading would stand over whatever came after it.
    #[command(flatten)]
    pub(crate) route: RouteArgs,
}

/// Tell what a sandbox would cost, line by line; nothing is created
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sandboxer estimate --profile profile.agent-dev --duration 1h\n  \
    sandboxer estimate --profile profile.burst-sandbox --duration 1h --extension ext.saas-stub --json\n\n\
    Exits with 7 if no backend fits.")]
pub(crate) struct EstimateArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    /// How long it would run: 90s, 30m, 2h, 1d
    #[arg(long, short, value_name = "DURATION", value_parser = value::dur)]
    pub(crate) duration: Dur,

    #[command(flatten)]
    pub(crate) route: RouteArgs,
}
