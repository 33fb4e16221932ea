//! Commands that reach into a sandbox.

use clap::Args;
use sandboxer_core::Dur;

use super::value;

/// Run a command in a sandbox and exit with its code
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sandboxer exec sbx_… -- ls -la /\n  \
    echo hello | sandboxer exec -i sbx_… -- cat\n  \
    sandboxer exec -t -i sbx_… -- top\n  \
    sandboxer exec --timeout 30s sbx_… -- make test\n  \
    sandboxer exec -d sbx_… -- ./server              prints the exec's id; see `logs`\n\n\
    Without -i the command's stdin is empty. A time-out ends the whole process tree and exits with 124.\n\
    Ctrl-C is passed on to the command; a second one reaches everything it started, a third kills it.")]
pub(crate) struct ExecArgs {
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// Give it a terminal
    #[arg(short, long)]
    pub(crate) tty: bool,

    /// Pass stdin on to it, with its end
    #[arg(short, long)]
    pub(crate) interactive: bool,

    /// Its working directory
    #[arg(long, short = 'w', value_name = "DIR")]
    pub(crate) cwd: Option<String>,

    /// A variable; K alone takes the value from here; may be repeated
    #[arg(long, short, value_name = "K=V", value_parser = value::env_pair)]
    pub(crate) env: Vec<(String, String)>,

    /// End it, and everything it started, after this long
    #[arg(long, value_name = "DURATION", value_parser = value::dur)]
    pub(crate) timeout: Option<Dur>,

    /// Run it as this user
    #[arg(long, short, value_name = "USER")]
    pub(crate) user: Option<String>,

    /// Start it in the background and print its id
    #[arg(long, short = 'd', conflicts_with_all = ["tty", "interactive"])]
    pub(crate) background: bool,

    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<String>,
}

/// Open a shell in a sandbox: bash if it is there, otherwise sh
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sandboxer shell sbx_…\n  sandboxer shell --cwd /tmp sbx_…")]
pub(crate) struct ShellArgs {
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// Where to start
    #[arg(long, short = 'w', value_name = "DIR")]
    pub(crate) cwd: Option<String>,

    /// Run it as this user
    #[arg(long, short, value_name = "USER")]
    pub(crate) user: Option<String>,
}

/// Copy files and folders into, out of and between sandboxes
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sandboxer cp ./project sbx_…:/work\n  \
    sandboxer cp sbx_…:/work/report.pdf .\n  \
    sandboxer cp sbx_…:/etc/os-release -              to stdout\n  \
    tar c . | sandboxer cp - sbx_…:/work              a tar, because /work is a folder\n\n\
    A folder that exists gets the source inside it; otherwise the source takes the destination's name.\n\
    `SRC/.` means what is in SRC. `-` is the bytes of a file, or a tar where the other side is a folder.")]
pub(crate) struct CpArgs {
    /// ID:path, a local path, or - for stdin
    #[arg(value_name = "SRC")]
    pub(crate) source: String,

    /// ID:path, a local path, or - for stdout
    #[arg(value_name = "DST")]
    pub(crate) destination: String,
}

/// Print what a background exec wrote; without EXEC the newest one, or else what the backend logged
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sandboxer logs sbx_…\n  sandboxer logs -f sbx_… exe_…\n  sandboxer logs --list sbx_…\n  sandboxer logs --backend sbx_…"
)]
pub(crate) struct LogsArgs {
    /// The sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// The exec
    #[arg(value_name = "EXEC")]
    pub(crate) exec: Option<String>,

    /// Go on until it ends
    #[arg(short, long)]
    pub(crate) follow: bool,

    /// Only its stdout
    #[arg(long, conflicts_with = "stderr")]
    pub(crate) stdout: bool,

    /// Only its stderr
    #[arg(long)]
    pub(crate) stderr: bool,

    /// List the execs that are remembered instead
    #[arg(long, conflicts_with_all = ["follow", "exec", "stdout", "stderr"])]
    pub(crate) list: bool,

    /// What the backend itself logged instead: the services of a compose stack, the console of a machine
    #[arg(long, conflicts_with_all = ["exec", "stdout", "stderr", "list"])]
    pub(crate) backend: bool,
}
