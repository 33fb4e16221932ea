//! Commands about pausing, snapshots and ports.

use std::net::SocketAddr;

use clap::{Args, Subcommand};
use sandboxer_core::Dur;

use super::value;

/// Stop everything in a sandbox where it stands; its TTL goes on
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sandboxer pause sbx_…\n  sandboxer resume sbx_…")]
pub(crate) struct PauseArgs {
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// Let a paused sandbox go on
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sandboxer resume sbx_…")]
pub(crate) struct ResumeArgs {
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// Take a snapshot of a sandbox; prints its id
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sandboxer snapshot sbx_… --name before-upgrade\n  \
    sandboxer restore $(sandboxer snapshot sbx_…)")]
pub(crate) struct SnapshotArgs {
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// A name for people; need not be unique
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

/// Create a sandbox from a snapshot, configured as the original was
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sandboxer restore snp_…\n  sandboxer restore snp_… --ttl 2h --label try=2\n\n\
    `sandboxer create --from snp_…` does the same with all its options.")]
pub(crate) struct RestoreArgs {
    /// The snapshot
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) id: String,

    /// How long it lives; the profile's default without it
    #[arg(long, value_name = "DURATION", value_parser = value::dur)]
    pub(crate) ttl: Option<Dur>,

    /// A label to find it by; may be repeated
    #[arg(long, value_name = "K=V", value_parser = value::pair)]
    pub(crate) label: Vec<(String, String)>,

    /// The same key and the same request give the same sandbox
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
}

/// Create sandboxes that go on from where one stands; exits with 1 if some could not be made
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sandboxer fork sbx_…\n  sandboxer fork sbx_… --count 8 --ttl 30m")]
pub(crate) struct ForkArgs {
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// How many, 1 to 32
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) count: u32,

    /// How long each lives; as long as the original was given without it
    #[arg(long, value_name = "DURATION", value_parser = value::dur)]
    pub(crate) ttl: Option<Dur>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotsCommand {
    /// List snapshots, newest first
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  sandboxer snapshots list\n  sandboxer snapshots list --sandbox sbx_…"
    )]
    List {
        /// Only those of this sandbox
        #[arg(long, value_name = "ID")]
        sandbox: Option<String>,
        /// At most so many; without it all of them
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        limit: Option<u32>,
        /// Go on where an earlier answer with --limit ended
        #[arg(long, value_name = "CURSOR")]
        cursor: Option<String>,
    },
    /// Show one snapshot
    #[command(after_help = "Examples:\n  sandboxer snapshots get snp_…")]
    Get {
        /// The snapshot
        #[arg(value_name = "SNAPSHOT")]
        id: String,
    },
    /// Delete snapshots
    #[command(visible_alias = "rm", after_help = "Examples:\n  sandboxer snapshots delete snp_… snp_…")]
    Delete {
        /// The snapshots
        #[arg(value_name = "SNAPSHOT", required = true)]
        ids: Vec<String>,
    },
}

/// Forward a local TCP port to a port in a sandbox until interrupted; prints the local address
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sandboxer port sbx_… 8000\n  sandboxer port sbx_… 5432 --listen 127.0.0.1:5432")]
pub(crate) struct PortArgs {
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// The port inside, on its loopback
    #[arg(value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,

    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
}
