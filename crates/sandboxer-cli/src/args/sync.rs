//! `sync`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Sync a mirrored workspace with its folder, or bring any workspace out into a folder
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sandboxer sync sbx_…\n  \
    sandboxer sync sbx_… --dry-run\n  \
    sandboxer sync sbx_… --prefer local\n  \
    sandboxer sync sbx_… --down ./result\n\n\
    Where both sides changed a file, neither is touched, and the exit code is 4.")]
pub(crate) struct SyncArgs {
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// With --down: bring the whole workspace into this folder, of whatever mode it is
    #[arg(value_name = "DIR", requires = "down", conflicts_with_all = ["dry_run", "prefer"])]
    pub(crate) folder: Option<PathBuf>,

    /// Only into the sandbox
    #[arg(long, conflicts_with_all = ["down", "both"])]
    pub(crate) up: bool,

    /// Only out of the sandbox
    #[arg(long, conflicts_with = "both")]
    pub(crate) down: bool,

    /// Both ways, which is the default
    #[arg(long)]
    pub(crate) both: bool,

    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Whose version wins where both sides changed
    #[arg(long, value_name = "SIDE", value_enum)]
    pub(crate) prefer: Option<PreferArg>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PreferArg {
    Local,
    Sandbox,
}
