//! `create`.

use clap::{Args, ValueEnum};
use sandboxer_core::Actor;
use sandboxer_core::profile::Scope;

use super::route::{RequestArgs, RouteArgs};
use super::value;

/// Create a sandbox; without arguments the canary
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sandboxer create\n  \
    sandboxer create --profile profile.agent-dev --ttl 2h --label team=blue\n  \
    sandboxer create --profile profile.build --dry-run\n  \
    sandboxer create --profile profile.agent-dev --workspace . --workspace-mode mirror\n  \
    ID=$(sandboxer create --ttl 10m) && sandboxer exec $ID -- hostname")]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    pub(crate) request: RequestArgs,

    /// Who shares it
    #[arg(long, value_name = "SCOPE", value_parser = value::scope())]
    pub(crate) scope: Option<Scope>,

    /// A label to find it by; may be repeated
    #[arg(long, value_name = "K=V", value_parser = value::pair)]
    pub(crate) label: Vec<(String, String)>,

    /// A variable that is visible inside, not a place for secrets; K alone takes the value from here
    #[arg(long, value_name = "K=V", value_parser = value::env_pair)]
    pub(crate) env: Vec<(String, String)>,

    /// Print the route and the quote, and create nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// The same key and the same request give the same sandbox
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,

    /// Start even if an isolation control is missing on this machine; recorded with the sandbox
    #[arg(long)]
    pub(crate) allow_degraded: bool,

    #[command(flatten)]
    pub(crate) route: RouteArgs,

    #[command(flatten)]
    pub(crate) workspace: WorkspaceArgs,

    #[command(flatten)]
    pub(crate) consumer: ConsumerArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Workspace")]
pub(crate) struct WorkspaceArgs {
    /// The folder that the workspace starts with, on the machine that runs the engine
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<std::path::PathBuf>,

    /// Where the workspace's truth is
    #[arg(long, value_name = "MODE", value_enum)]
    pub(crate) workspace_mode: Option<WorkspaceModeArg>,

    /// What commands inside may do with it
    #[arg(long, visible_alias = "access", value_name = "ACCESS", value_enum)]
    pub(crate) workspace_access: Option<WorkspaceAccessArg>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WorkspaceModeArg {
    Mirror,
    #[value(alias = "remote")]
    RemoteCanonical,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WorkspaceAccessArg {
    None,
    Ro,
    Rw,
}

/// Who the sandbox is for.
#[derive(Debug, Args)]
#[command(next_help_heading = "Consumer")]
pub(crate) struct ConsumerArgs {
    /// adm (a person or operator), agt (an agent), atm (an automation)
    #[arg(long, value_name = "ACTOR", value_parser = value::actor())]
    pub(crate) actor: Option<Actor>,

    /// The harness that asks
    #[arg(long, value_name = "NAME")]
    pub(crate) harness: Option<String>,

    /// The agent it is for; decides reuse within scope `agent`
    #[arg(long, value_name = "ID")]
    pub(crate) agent_id: Option<String>,

    /// The session it is for
    #[arg(long, value_name = "ID")]
    pub(crate) session_id: Option<String>,

    /// The run it is for
    #[arg(long, value_name = "ID")]
    pub(crate) run_id: Option<String>,

    /// The job it is for
    #[arg(long, value_name = "ID")]
    pub(crate) job_id: Option<String>,
}
