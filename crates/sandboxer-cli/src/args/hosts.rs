//! Commands about hosts and what is left on them.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::value;

#[derive(Debug, Subcommand)]
pub(crate) enum HostsCommand {
    /// List hosts with their load and health
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  sandboxer hosts list\n  sandboxer hosts list --json"
    )]
    List,
    /// Register a host that is reached by SSH
    Add(Box<HostsAddArgs>),
    /// Forget a host on which nothing of ours lives
    #[command(visible_alias = "rm", after_help = "Examples:\n  sandboxer hosts remove sandboxer01")]
    Remove {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// See whether hosts answer, show their keys, and what the extensions find; exits with 7 if one cannot be used
    #[command(after_help = "Examples:\n  sandboxer hosts check\n  sandboxer hosts check sandboxer01")]
    Check {
        /// Its name; without it all of them
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
}

/// Register a host that is reached by SSH
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sandboxer hosts add sandboxer01 ssh://ops@10.0.0.4 --fingerprint SHA256:…\n  \
    sandboxer hosts add ci ssh://ops@ci.example.org:2222 --identity-file ~/.ssh/ci --label pool=ci --max-sandboxes 20\n\n\
    Without a key or a fingerprint the keys that the host shows are printed; on a terminal you are asked\n\
    whether they are right, elsewhere the command is refused with 5.")]
pub(crate) struct HostsAddArgs {
    /// What it is called: letters, digits, `.`, `_` and `-`
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// Where it is: ssh://user@address:port
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: String,

    /// The private key's file; without it the agent and the user's defaults are asked
    #[arg(long, value_name = "FILE")]
    pub(crate) identity_file: Option<PathBuf>,

    /// A label, which profiles can prefer; may be repeated
    #[arg(long, value_name = "K=V", value_parser = value::pair)]
    pub(crate) label: Vec<(String, String)>,

    /// The region that profiles can require
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Option<String>,

    #[command(flatten)]
    pub(crate) capacity: CapacityArgs,

    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}

/// What may be placed on it; without a limit its own is the only one.
#[derive(Debug, Args)]
#[command(next_help_heading = "Capacity")]
pub(crate) struct CapacityArgs {
    /// At most so many sandboxes
    #[arg(long, value_name = "N")]
    pub(crate) max_sandboxes: Option<u32>,

    /// At most so many processors in all
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<f64>,

    /// At most so much memory in all
    #[arg(long, value_name = "MB")]
    pub(crate) memory_mb: Option<u64>,

    /// At most so much disk in all
    #[arg(long, value_name = "MB")]
    pub(crate) disk_mb: Option<u64>,
}

/// Who vouches for its key.
#[derive(Debug, Args)]
#[command(next_help_heading = "Host key")]
pub(crate) struct TrustArgs {
    /// The public key to pin, `ssh-ed25519 AAAA…`; may be repeated
    #[arg(long, value_name = "KEY", conflicts_with_all = ["fingerprint", "accept_key", "from_known_hosts"])]
    pub(crate) host_key: Vec<String>,

    /// The fingerprint of the key that the host must show, `SHA256:…`; may be repeated
    #[arg(long, value_name = "SHA256", conflicts_with_all = ["accept_key", "from_known_hosts"])]
    pub(crate) fingerprint: Vec<String>,

    /// Pin whatever the host shows now, without comparing it
    #[arg(long, conflicts_with = "from_known_hosts")]
    pub(crate) accept_key: bool,

    /// Pin the keys that ssh on this machine already knows for it
    #[arg(long)]
    pub(crate) from_known_hosts: bool,
}

/// Show what is stale on the hosts; with --apply remove it
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sandboxer reap-stale\n  sandboxer reap-stale --apply\n  sandboxer reap-stale --host sandboxer01 --apply\n\n\
    Exits with 1 if something could not be removed.")]
pub(crate) struct ReapStaleArgs {
    /// Do it
    #[arg(long)]
    pub(crate) apply: bool,

    /// Only on this host
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,

    /// Also what no row here knows: it may belong to another installation that uses the same host
    #[arg(long)]
    pub(crate) unknown: bool,
}
