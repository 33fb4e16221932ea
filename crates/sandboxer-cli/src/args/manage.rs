//! Commands about sandboxes, the catalog, the machine and the server.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use sandboxer_core::{Actor, Dur, State};

use super::value;

/// Show one sandbox
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sandboxer get sbx_…\n  sandboxer get --json sbx_…")]
pub(crate) struct GetArgs {
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// List sandboxes, newest first
#[derive(Debug, Args)]
#[command(
    visible_alias = "ls",
    after_help = "Examples:\n  \
    sandboxer list\n  sandboxer list --label team=blue\n  sandboxer list --all --state destroyed --limit 20"
)]
pub(crate) struct ListArgs {
    /// Only those in this state
    #[arg(long, value_name = "STATE", value_parser = value::state())]
    pub(crate) state: Option<State>,

    /// Only those with this label; may be repeated, all must match
    #[arg(long, value_name = "K=V", value_parser = value::pair)]
    pub(crate) label: Vec<(String, String)>,

    /// Also those that have ended
    #[arg(long, short)]
    pub(crate) all: bool,

    /// At most so many; without it all of them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,

    /// Go on where an earlier answer with --limit ended
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}

/// End sandboxes and remove everything of them
#[derive(Debug, Args)]
#[command(
    visible_alias = "rm",
    after_help = "Examples:\n  \
    sandboxer destroy sbx_…\n  sandboxer destroy sbx_… sbx_…\n  sandboxer destroy --all --yes"
)]
pub(crate) struct DestroyArgs {
    /// The sandboxes
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) ids: Vec<String>,

    /// Every sandbox that you can see
    #[arg(long, requires = "yes")]
    pub(crate) all: bool,

    /// Yes, really all of them
    #[arg(long, requires = "all")]
    pub(crate) yes: bool,
}

/// End a sandbox and create a new one from the same profile and wishes
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sandboxer recreate sbx_…")]
pub(crate) struct RecreateArgs {
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// Move the end of a sandbox
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sandboxer extend-ttl sbx_… --duration 2h")]
pub(crate) struct ExtendTtlArgs {
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// It lives at least so long from now on
    #[arg(long, value_name = "DURATION", value_parser = value::dur)]
    pub(crate) duration: Dur,
}

/// Show the sandboxes whose time is over; with --apply bring them to their end
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sandboxer expire\n  sandboxer expire --apply")]
pub(crate) struct ExpireArgs {
    /// Do it
    #[arg(long)]
    pub(crate) apply: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfilesCommand {
    /// List profiles, where they came from and whether they can be used here
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  sandboxer profiles list\n  sandboxer --profiles ./mine profiles list"
    )]
    List,
    /// Show one profile with everything it inherits
    #[command(
        after_help = "Examples:\n  sandboxer profiles show profile.agent-dev\n  sandboxer profiles show profile.agent-dev@1.0.0 --json"
    )]
    Show {
        /// Its name, with or without a version
        #[arg(value_name = "PROFILE")]
        name: String,
    },
    /// Check profile files, always on this machine
    #[command(
        after_help = "Examples:\n  sandboxer profiles validate ./profile.mine.yaml\n  sandboxer profiles validate .sandboxer/profiles/*.yaml"
    )]
    Validate {
        /// The files
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExtensionsCommand {
    /// List extensions and whether they can be used now
    #[command(visible_alias = "ls", after_help = "Examples:\n  sandboxer extensions list")]
    List,
    /// Show what an extension declares
    #[command(after_help = "Examples:\n  sandboxer extensions show ext.native")]
    Show {
        /// Its id
        #[arg(value_name = "EXTENSION")]
        id: String,
    },
    /// Check what extensions need, or try one out with a small sandbox
    ///
    /// Exits with 7 if one cannot be used, with 1 if the one that was named does not do what it declares.
    #[command(
        after_help = "Examples:\n  sandboxer extensions check\n  sandboxer extensions check ext.native\n  sandboxer extensions check ext.docker --profile profile.docker-dev --host build-1"
    )]
    Check {
        /// Its id; without it all of them are asked what they need, and none is tried out
        #[arg(value_name = "EXTENSION")]
        id: Option<String>,
        /// The host that the sandbox is placed on
        #[arg(long, value_name = "HOST", requires = "id")]
        host: Option<String>,
        /// The profile that the sandbox is made from; otherwise one that is made for the extension
        #[arg(long, value_name = "PROFILE", requires = "id")]
        profile: Option<String>,
        /// An input of the profile; may be repeated
        #[arg(long, value_name = "KEY=VALUE", value_parser = value::pair, requires = "id")]
        input: Vec<(String, String)>,
    },
}

/// Show what happened, oldest first
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
    sandboxer events\n  sandboxer events sbx_…\n  sandboxer events -f --json | jq .type\n  sandboxer events dead"
)]
pub(crate) struct EventsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<super::webhooks::EventsCommand>,

    /// Only this sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,

    /// Go on as events come; without --after from now on
    #[arg(short, long)]
    pub(crate) follow: bool,

    /// Only what came after this event
    #[arg(long, value_name = "EVENT")]
    pub(crate) after: Option<String>,

    /// At most so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,
}

/// Tell what this machine can do; exits with 7 if no sandbox can be created
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sandboxer doctor\n  sandboxer --server http://127.0.0.1:8377 doctor")]
pub(crate) struct DoctorArgs {}

#[derive(Debug, Subcommand)]
pub(crate) enum InspectCommand {
    /// Processors, memory, disk, kernel, isolation, engines, our sandboxes and foreign containers; exits with 7 if the
    /// host does not answer
    #[command(
        after_help = "Examples:\n  sandboxer inspect host\n  sandboxer inspect host sandboxer01 --json"
    )]
    Host {
        /// Its name; without it the machine of the engine
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// What carries our tag and has no living row, and rows with nothing behind them
    #[command(
        after_help = "Examples:\n  sandboxer inspect stale\n  sandboxer inspect stale --host sandboxer01"
    )]
    Stale {
        /// Only on this host
        #[arg(long, value_name = "NAME")]
        host: Option<String>,
    },
    /// Usage and enforced isolation of one sandbox, as its backend sees them now
    #[command(after_help = "Examples:\n  sandboxer inspect sandbox sbx_…")]
    Sandbox {
        /// The sandbox
        #[arg(value_name = "ID")]
        id: String,
    },
}

/// Serve the HTTP API until interrupted
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sandboxer serve\n  \
    sandboxer keys create --name ci --actor atm && sandboxer serve --listen 0.0.0.0:8377\n\n\
    An address that is not loopback needs at least one API key.")]
pub(crate) struct ServeArgs {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8377")]
    pub(crate) listen: SocketAddr,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key and print its secret, once
    #[command(
        after_help = "Examples:\n  sandboxer keys create --name laptop\n  sandboxer keys create --name ci --actor atm --expires-in 30d\n  sandboxer keys create --name bot --actor agt --org acme --workspace research"
    )]
    Create {
        /// What it is for
        #[arg(long, value_name = "NAME")]
        name: String,
        /// adm may everything, atm may not manage keys, agt sees only what it made
        #[arg(long, value_name = "ACTOR", value_parser = value::actor(), default_value = "adm")]
        actor: Actor,
        /// It ends by itself after this long
        #[arg(long, value_name = "DURATION", value_parser = value::dur)]
        expires_in: Option<Dur>,
        /// The organisation whose credits it spends
        #[arg(long, value_name = "ORG", default_value = sandboxer_core::ledger::DEFAULT)]
        org: String,
        /// The workspace in it
        #[arg(long, value_name = "WORKSPACE", default_value = sandboxer_core::ledger::DEFAULT)]
        workspace: String,
    },
    /// List keys, never their secrets
    #[command(visible_alias = "ls", after_help = "Examples:\n  sandboxer keys list")]
    List,
    /// Make a key useless at once
    #[command(after_help = "Examples:\n  sandboxer keys revoke key_…")]
    Revoke {
        /// The key
        #[arg(value_name = "KEY")]
        id: String,
    },
}

/// Print the completions for a shell
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sandboxer completions bash > ~/.local/share/bash-completion/completions/sandboxer"
)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub(crate) shell: clap_complete::Shell,
}
