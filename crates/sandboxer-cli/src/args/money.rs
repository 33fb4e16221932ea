//! Commands about credits and meters.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use sandboxer_core::Money;
use sandboxer_core::ledger::Period;
use sandboxer_engine::Month;

use super::value;

#[derive(Debug, Subcommand)]
pub(crate) enum CreditsCommand {
    /// Show balances, what is held, and budgets
    #[command(
        after_help = "Examples:\n  sandboxer credits show\n  sandboxer credits show workspace:research --json"
    )]
    Show {
        /// Only this account: org:acme, workspace:research, workspace:acme/research, key:key_…
        #[arg(value_name = "ACCOUNT")]
        account: Option<String>,
    },
    /// Pay in
    #[command(after_help = "Examples:\n  \
        sandboxer credits add 25\n  \
        sandboxer credits add 25.00 --account workspace:acme/research --memo 'invoice 17' --id invoice-17")]
    Add(CreditsAddArgs),
    /// Put an account right: more, or less with an amount below zero
    #[command(after_help = "Examples:\n  \
        sandboxer credits adjust -25 --account workspace:acme/research --memo 'invoice 17 was paid in twice'\n  \
        sandboxer credits adjust 0.50 --account org:acme --memo 'goodwill' --id goodwill-3")]
    Adjust(CreditsAdjustArgs),
    /// Show what was moved, oldest first
    #[command(
        visible_alias = "entries",
        after_help = "Examples:\n  \
        sandboxer credits history\n  \
        sandboxer credits history --account org:acme --from 2026-11-01 --until 2026-12-01\n  \
        sandboxer credits history --sandbox sbx_…"
    )]
    History(CreditsHistoryArgs),
    /// Print the statement of a month
    #[command(after_help = "Examples:\n  \
        sandboxer credits export --month 2026-11 > 2026-11.csv\n  \
        sandboxer credits export --month 2026-11 --format json --account org:acme")]
    Export(CreditsExportArgs),
    /// Let an account go below zero, or no more
    #[command(after_help = "Examples:\n  sandboxer credits limit org:acme --overdraft 50\n  \
        sandboxer credits limit org:acme --overdraft 0")]
    Limit {
        /// The account
        #[arg(value_name = "ACCOUNT")]
        account: String,
        /// How far below zero, in dollars
        #[arg(long, value_name = "AMOUNT", allow_hyphen_values = true, value_parser = value::bound)]
        overdraft: Money,
    },
    /// Bound what somebody spends in a day or a month
    #[command(subcommand)]
    Budget(BudgetCommand),
    /// Add up all books; exits with 1 if something is wrong with them
    #[command(after_help = "Examples:\n  sandboxer credits audit")]
    Audit,
    /// Compare a provider's usage export with our meters; exits with 1 if they differ
    Reconcile(ReconcileArgs),
    /// Keep workspaces' own keys at providers
    #[command(subcommand)]
    ProviderKeys(ProviderKeysCommand),
}

#[derive(Debug, Args)]
pub(crate) struct CreditsAddArgs {
    /// Dollars, above zero, with at most nine decimals
    #[arg(value_name = "AMOUNT", allow_hyphen_values = true, value_parser = value::amount)]
    pub(crate) amount: Money,

    /// Where it goes: org:acme, workspace:research, workspace:acme/research, key:key_…; otherwise the account that pays for you
    #[arg(long, value_name = "ACCOUNT")]
    pub(crate) account: Option<String>,

    /// What it is for
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) memo: String,

    /// The same id with the same content is the same payment, made once
    #[arg(long, value_name = "KEY")]
    pub(crate) id: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CreditsAdjustArgs {
    /// Dollars, above or below zero, with at most nine decimals
    #[arg(value_name = "AMOUNT", allow_hyphen_values = true, value_parser = value::adjustment)]
    pub(crate) amount: Money,

    /// Which account; it stays within its limit
    #[arg(long, value_name = "ACCOUNT")]
    pub(crate) account: String,

    /// What is put right
    #[arg(long, value_name = "TEXT")]
    pub(crate) memo: String,

    /// The same id with the same content is the same adjustment, made once
    #[arg(long, value_name = "KEY")]
    pub(crate) id: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CreditsHistoryArgs {
    /// This account, or `all`; otherwise the one that pays for you
    #[arg(long, value_name = "ACCOUNT")]
    pub(crate) account: Option<String>,

    /// Everything that was moved for this sandbox
    #[arg(long, value_name = "ID")]
    pub(crate) sandbox: Option<String>,

    #[command(flatten)]
    pub(crate) span: SpanArgs,

    /// At most so many; without it all of them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,

    /// Go on where an earlier answer with --limit ended
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}

/// Between two moments.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SpanArgs {
    /// From this moment or day on: 2026-11-01, 2026-11-01T10:00:00Z
    #[arg(long, value_name = "TIME", value_parser = value::moment)]
    pub(crate) from: Option<Timestamp>,

    /// Before this moment or day
    #[arg(long, value_name = "TIME", value_parser = value::moment)]
    pub(crate) until: Option<Timestamp>,
}

#[derive(Debug, Args)]
pub(crate) struct CreditsExportArgs {
    /// The month, in UTC: 2026-11
    #[arg(long, value_name = "MONTH", value_parser = value::month)]
    pub(crate) month: Month,

    /// csv for a spreadsheet, json for programs
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = ExportFormat::Csv)]
    pub(crate) format: ExportFormat,

    /// Whose; otherwise the account that pays for you
    #[arg(long, value_name = "ACCOUNT")]
    pub(crate) account: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    Csv,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BudgetCommand {
    /// Set a budget, in place of the one that was there
    #[command(after_help = "Examples:\n  \
        sandboxer credits budget set actor:agt --per day --limit 5\n  \
        sandboxer credits budget set actor:acme/agt --per day --limit 5\n  \
        sandboxer credits budget set workspace:acme/research --per month --limit 200\n  \
        sandboxer credits budget set profile:profile.burst-sandbox --per day --limit 1.50")]
    Set {
        /// Whose: org:…, workspace:…, key:…, actor:acme/agt, profile:acme/profile.agent-dev; without `acme/` the default organisation's
        #[arg(value_name = "SUBJECT")]
        subject: String,
        /// day or month, in UTC
        #[arg(long, value_name = "PERIOD", value_parser = value::period())]
        per: Period,
        /// The most, in dollars; 0 allows nothing that costs
        #[arg(long, value_name = "AMOUNT", allow_hyphen_values = true, value_parser = value::bound)]
        limit: Money,
    },
    /// List budgets with what was used of them
    #[command(visible_alias = "ls", after_help = "Examples:\n  sandboxer credits budget list")]
    List,
    /// Remove a budget
    #[command(
        visible_alias = "rm",
        after_help = "Examples:\n  sandboxer credits budget remove actor:agt --per day"
    )]
    Remove {
        /// Whose
        #[arg(value_name = "SUBJECT")]
        subject: String,
        /// day or month
        #[arg(long, value_name = "PERIOD", value_parser = value::period())]
        per: Period,
    },
}

/// Compare a provider's usage export with our meters; exits with 1 if they differ
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sandboxer credits reconcile --extension ext.e2b usage-2026-11.csv\n  \
    sandboxer credits reconcile --extension ext.e2b --tolerance 0.01 usage.json\n\n\
    The file's columns are tag (or sandbox_id), cost, and seconds or started_at with ended_at, and a currency, which\n\
    is USD; `.json` is a list of objects with these fields. Nothing is changed by it.")]
pub(crate) struct ReconcileArgs {
    /// Whose export it is
    #[arg(long, value_name = "EXTENSION")]
    pub(crate) extension: String,

    /// The file, .csv or .json; at most 8 MiB
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Differences up to this much for a sandbox are called equal
    #[arg(long, value_name = "AMOUNT", allow_hyphen_values = true, value_parser = value::bound, default_value = "0")]
    pub(crate) tolerance: Money,

    #[command(flatten)]
    pub(crate) span: SpanArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProviderKeysCommand {
    /// List them by their fingerprints, never the keys themselves
    #[command(visible_alias = "ls", after_help = "Examples:\n  sandboxer credits provider-keys list")]
    List,
    /// Keep a key, which is read from stdin or a file and never from an argument
    #[command(after_help = "Examples:\n  \
        sandboxer credits provider-keys set --workspace research --extension ext.e2b < key.txt\n  \
        sandboxer credits provider-keys set --workspace acme/research --extension ext.e2b --from-file key.txt --fee-percent 2.5")]
    Set {
        #[command(flatten)]
        whose: ProviderKeyArgs,
        /// What the platform adds to the provider's cost, in per cent
        #[arg(long, value_name = "PERCENT")]
        fee_percent: Option<String>,
        /// Read the key from this file
        #[arg(long, value_name = "FILE")]
        from_file: Option<PathBuf>,
    },
    /// Forget a key
    #[command(
        visible_alias = "rm",
        after_help = "Examples:\n  sandboxer credits provider-keys remove --workspace research --extension ext.e2b"
    )]
    Remove {
        #[command(flatten)]
        whose: ProviderKeyArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ProviderKeyArgs {
    /// The workspace: research, or acme/research of another organisation
    #[arg(long, value_name = "WORKSPACE")]
    pub(crate) workspace: String,

    /// The provider's extension
    #[arg(long, value_name = "EXTENSION")]
    pub(crate) extension: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MetersCommand {
    /// List what was used, interval by interval, newest first
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  \
        sandboxer meters list --sandbox sbx_…\n  \
        sandboxer meters list --extension ext.e2b --from 2026-11-01 --json"
    )]
    List(MetersListArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MetersListArgs {
    /// Only this sandbox
    #[arg(long, value_name = "ID")]
    pub(crate) sandbox: Option<String>,

    /// Only this extension
    #[arg(long, value_name = "EXTENSION")]
    pub(crate) extension: Option<String>,

    #[command(flatten)]
    pub(crate) span: SpanArgs,

    /// At most so many; without it all of them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,

    /// Go on where an earlier answer with --limit ended
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}
