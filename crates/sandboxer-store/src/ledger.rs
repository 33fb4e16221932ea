//! The books: accounts, entries, holds, budgets and meters. What a sandbox's life does to them goes with its row, in
//! [`Books`]; the rest is here.

use async_trait::async_trait;
use jiff::Timestamp;
use sandboxer_core::bill::Settlement;
use sandboxer_core::extension::Usage;
use sandboxer_core::ledger::{Account, Budget, Entry, Kind, Meter, Payer, Period};
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::tariff::ProviderKey;
use sandboxer_core::{Money, Result, SandboxId};

/// What a change of a sandbox does to the books, in the transaction of the change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Books {
    /// Brings what is held for the sandbox to this amount.
    pub hold: Option<Hold>,
    /// Intervals that begin, and intervals that end.
    pub meters: Vec<Meter>,
    /// Ends the hold.
    pub settle: Option<Settle>,
}

impl Books {
    pub fn is_empty(&self) -> bool {
        self.hold.is_none() && self.meters.is_empty() && self.settle.is_none()
    }
}

/// So much is to be held. `InsufficientCredits` when the account or a budget does not allow it: then nothing at all of
/// the change is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    pub payer: Payer,
    pub amount: Money,
    pub at: Timestamp,
}

/// What was used is posted and the rest goes back; nothing used voids the hold. Once, whoever asks and however often.
#[derive(Clone, Debug, PartialEq)]
pub struct Settle {
    /// Whose account it is where nothing was ever held.
    pub payer: Payer,
    pub settlement: Settlement,
    pub at: Timestamp,
    pub told: Told,
}

/// What a statement tells of a sandbox that has ended; kept when its row is not any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Told {
    pub extension: String,
    /// Without its version.
    pub profile: String,
    pub provider_key: ProviderKey,
    /// What the provider asks, whoever pays it.
    pub upstream: Money,
}

/// Money that comes in, goes out or is put right. The same id with the same content is the same transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    pub id: String,
    pub kind: Kind,
    pub from: String,
    pub to: String,
    pub amount: Money,
    pub memo: String,
    /// The books never go back: it is entered no earlier than what was entered before.
    pub time: Timestamp,
}

/// Which entries, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EntryFilter {
    pub account: Option<String>,
    pub sandbox: Option<SandboxId>,
    /// Only what was moved for sandboxes that count in the budgets of this subject, and what is on its own account.
    pub subject: Option<String>,
    /// From this moment on, and before that one.
    pub from: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// Which meters, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeterFilter {
    pub sandbox: Option<SandboxId>,
    pub extension: Option<String>,
    /// Only sandboxes of this key.
    pub owner_key: Option<String>,
    /// Begun from this moment on, and before that one.
    pub from: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// Whether the books are right. They are when nothing is listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Audit {
    pub transactions: u64,
    pub entries: u64,
    /// In words: what does not sum to zero, which balance is not the sum of its entries, which hold has no sandbox.
    pub wrong: Vec<String>,
}

/// A workspace's own key at a provider: where the secret is, never the secret.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OwnKey {
    pub organisation: String,
    pub workspace: String,
    pub extension: String,
    /// The name under which the secret is kept.
    pub secret: String,
    /// Hundredths of a per cent of the upstream cost that the platform asks.
    pub fee_basis_points: u32,
    pub created_at: Timestamp,
}

#[async_trait]
pub trait Ledger: Send + Sync {
    /// Moves money. `Conflict` for a known id with another content, `InsufficientCredits` below the account's limit.
    /// The entries of the transfer, whether it was made now or before.
    async fn transfer(&self, transfer: &Transfer) -> Result<Vec<Entry>>;

    /// Any account, `held:…`, `provider:…`, `world` and `fees` among them.
    async fn account(&self, account: &str) -> Result<Option<Account>>;

    /// The accounts of organisations, workspaces and keys, by name.
    async fn accounts(&self) -> Result<Vec<Account>>;

    /// How far below zero an account may go; it is opened if it is not there.
    async fn overdraft(&self, account: &str, overdraft: Money) -> Result<Account>;

    /// Entries after a position, oldest first.
    async fn entries(&self, filter: &EntryFilter, after: i64, limit: Limit) -> Result<Vec<Entry>>;

    /// The sandboxes of an account that ended without any charge, with when they did: after this end and sandbox, before
    /// that moment, in order.
    async fn ended_free(
        &self,
        account: &str,
        after: (Timestamp, Option<SandboxId>),
        until: Timestamp,
        limit: Limit,
    ) -> Result<Vec<(SandboxId, Timestamp)>>;

    /// What was told at the end of a sandbox; nothing while it lives, or if it ended before this was kept.
    async fn told(&self, sandbox: SandboxId) -> Result<Option<Told>>;

    /// Sets a budget, or removes it.
    async fn budget(&self, subject: &str, period: Period, limit: Option<Money>) -> Result<()>;

    /// All budgets with what was used of them in the current period.
    async fn budgets(&self, now: Timestamp) -> Result<Vec<Budget>>;

    /// Newest first. The cursor is opaque; one that is not ours is `InvalidInput`.
    async fn meters(&self, filter: &MeterFilter, cursor: Option<&str>, limit: Limit) -> Result<Page<Meter>>;

    /// The backend was seen alive: the running intervals of the sandbox reach to this moment at least. Never goes back.
    async fn seen_alive(&self, sandbox: SandboxId, at: Timestamp, usage: Option<&Usage>) -> Result<()>;

    /// When the backend was last seen alive in the running interval, with what it had used by then.
    async fn last_alive(&self, sandbox: SandboxId) -> Result<Option<(Timestamp, Option<Usage>)>>;

    /// Adds up everything.
    async fn audit(&self) -> Result<Audit>;

    /// Sets a workspace's own key at a provider.
    async fn own_key_put(&self, key: &OwnKey) -> Result<()>;

    async fn own_key(&self, organisation: &str, workspace: &str, extension: &str) -> Result<Option<OwnKey>>;

    async fn own_keys(&self) -> Result<Vec<OwnKey>>;

    /// The removed one; `NotFound` when it is not there.
    async fn own_key_remove(&self, organisation: &str, workspace: &str, extension: &str) -> Result<OwnKey>;
}
