//! The command line as clap sees it. One type a command; what they mean is in `commands`.

mod checkpoints;
mod create;
mod exec;
mod hosts;
mod manage;
mod money;
mod route;
mod sync;
mod value;
mod webhooks;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use sandboxer_core::env_vars::EnvVars;

pub(crate) use checkpoints::{
    ForkArgs, PauseArgs, PortArgs, RestoreArgs, ResumeArgs, SnapshotArgs, SnapshotsCommand,
};
pub(crate) use create::{CreateArgs, WorkspaceAccessArg, WorkspaceModeArg};
pub(crate) use exec::{CpArgs, ExecArgs, LogsArgs, ShellArgs};
pub(crate) use hosts::{HostsAddArgs, HostsCommand, ReapStaleArgs};
pub(crate) use manage::{
    CompletionsArgs, DestroyArgs, DoctorArgs, EventsArgs, ExpireArgs, ExtendTtlArgs, ExtensionsCommand,
    GetArgs, InspectCommand, KeysCommand, ListArgs, ProfilesCommand, RecreateArgs, ServeArgs,
};
pub(crate) use money::{
    BudgetCommand, CreditsAddArgs, CreditsAdjustArgs, CreditsCommand, CreditsExportArgs, CreditsHistoryArgs,
    ExportFormat, MetersCommand, MetersListArgs, ProviderKeysCommand, ReconcileArgs,
};
pub(crate) use route::{EstimateArgs, RouteCommand};
pub(crate) use sync::{PreferArg, SyncArgs};
pub(crate) use webhooks::{EventsCommand, ReplayArgs, WebhooksAddArgs, WebhooksCommand};

/// Isolated sandboxes for agents and people, from one command.
#[derive(Debug, Parser)]
#[command(
    name = "sandboxer",
    version,
    about = "Isolated sandboxes for agents and people, from one command",
    long_about = "Isolated sandboxes for agents and people, from one command.\n\n\
        Without --server everything works on the local store, with no daemon; with it the same commands go to a \
        running `sandboxer serve`. Data goes to stdout, everything else to stderr.",
    after_help = "Examples:\n  \
        sandboxer create                            the canary; prints its id\n  \
        sandboxer exec sbx_… -- uname -a            run a command in it\n  \
        sandboxer shell sbx_…                       look around\n  \
        sandboxer destroy sbx_…                     end it\n\n\
        Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict or illegal state, 5 refused,\n\
        6 insufficient credits, 7 no backend, 124 time-out, 130 interrupted; `exec` exits with the\n\
        command's own code.",
    propagate_version = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags that every command has.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Globals {
    /// Print one JSON document, or one per line where the command streams
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// URL of a running server; empty means the local store
    #[arg(long, global = true, value_name = "URL", env = EnvVars::SANDBOXER_SERVER, hide_env_values = true)]
    pub(crate) server: Option<String>,

    /// File with the API key for the server; otherwise SANDBOXER_API_KEY
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,

    /// A further folder of profiles, also from SANDBOXER_PROFILES; may be repeated, later wins
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) profiles: Vec<PathBuf>,

    /// Where state is kept
    #[arg(long, global = true, value_name = "DIR", env = EnvVars::SANDBOXER_HOME, hide_env_values = true)]
    pub(crate) home: Option<PathBuf>,

    /// Say less: no notes, no warnings, no progress
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Log more; twice for still more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// When to use colour; NO_COLOR is respected
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Create(Box<CreateArgs>),
    Get(GetArgs),
    List(ListArgs),
    Destroy(DestroyArgs),
    Recreate(RecreateArgs),
    Exec(Box<ExecArgs>),
    Shell(ShellArgs),
    Cp(CpArgs),
    Sync(SyncArgs),
    Logs(LogsArgs),
    Port(PortArgs),
    ExtendTtl(ExtendTtlArgs),
    Expire(ExpireArgs),
    Pause(PauseArgs),
    Resume(ResumeArgs),
    Snapshot(SnapshotArgs),
    Restore(RestoreArgs),
    Fork(ForkArgs),
    /// List, show and delete snapshots
    #[command(subcommand)]
    Snapshots(SnapshotsCommand),
    /// Show and check profiles
    #[command(subcommand)]
    Profiles(ProfilesCommand),
    /// Show and check extensions
    #[command(subcommand)]
    Extensions(ExtensionsCommand),
    /// Add, list, check and remove the hosts that sandboxes are placed on
    #[command(subcommand)]
    Hosts(HostsCommand),
    /// Tell which backend a sandbox would be on, and why
    #[command(subcommand)]
    Route(RouteCommand),
    Estimate(Box<EstimateArgs>),
    /// Show, add and bound credits; what was moved, and whether it is right
    #[command(subcommand)]
    Credits(CreditsCommand),
    /// Show what was used
    #[command(subcommand)]
    Meters(MetersCommand),
    Events(EventsArgs),
    /// Add, list and test endpoints that events are posted to
    #[command(subcommand)]
    Webhooks(WebhooksCommand),
    Doctor(DoctorArgs),
    /// Look at a host, at what is stale, or at one sandbox from outside
    #[command(subcommand)]
    Inspect(InspectCommand),
    ReapStale(ReapStaleArgs),
    Serve(ServeArgs),
    /// Make, list and revoke API keys
    #[command(subcommand)]
    Keys(KeysCommand),
    Completions(CompletionsArgs),
    /// Delivers events that are waiting; started by other commands, never by people.
    #[command(name = "__deliver", hide = true)]
    Deliver,
}
