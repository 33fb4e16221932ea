//! The words of the credits ledger: who pays, which accounts there are, what an entry is.
//!
//! Every transaction is a set of entries that sum to zero, and no entry is ever changed. A hold is a transaction like
//! any other: from the payer's account to what is held for it.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::duration::Dur;
use crate::error::{Error, ErrorKind, Result};
use crate::id::SandboxId;
use crate::money::Money;
use crate::suggest::printable;
use crate::tariff::Phase;

/// The organisation and the workspace of whoever did not name another.
pub const DEFAULT: &str = "default";
/// Where credits come from and go to: what the world outside paid in, with its sign turned.
pub const WORLD: &str = "world";
/// What the platform earned beside the providers' cost.
pub const FEES: &str = "fees";
/// The most that one transaction moves: nano-dollars stay inside 64 bits.
pub const MOST: Money = Money::from_nanos(1_000_000_000 * 1_000_000_000);

/// Where somebody belongs: an organisation and a workspace in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Seat {
    pub organisation: String,
    pub workspace: String,
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.organisation, self.workspace)
    }
}

impl Default for Seat {
    fn default() -> Self {
        Self { organisation: DEFAULT.into(), workspace: DEFAULT.into() }
    }
}

impl Seat {
    pub fn check(&self) -> Result<()> {
        check_name("an organisation", &self.organisation)?;
        check_name("a workspace", &self.workspace)
    }
}

/// Who pays for a sandbox, and whose budgets it counts in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payer {
    pub organisation: String,
    pub workspace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub actor: Actor,
    /// The profile without its version.
    pub profile: String,
}

impl Payer {
    /// The accounts that may pay, most specific first. The first that was opened does; the workspace's is meant where
    /// none was.
    pub fn accounts(&self) -> Vec<String> {
        let mut out = Vec::new();
        out.extend(self.key.as_ref().map(|key| format!("key:{key}")));
        out.push(workspace_account(&self.organisation, &self.workspace));
        out.push(format!("org:{}", self.organisation));
        out
    }

    /// The account that is meant when none was opened.
    pub fn default_account(&self) -> String {
        workspace_account(&self.organisation, &self.workspace)
    }

    /// Whose budgets it counts in. Actor types and profiles have one in each organisation.
    pub fn subjects(&self) -> Vec<String> {
        let mut out = self.accounts();
        out.push(format!("actor:{}/{}", self.organisation, self.actor));
        out.push(format!("profile:{}/{}", self.organisation, self.profile));
        out
    }
}

pub fn workspace_account(organisation: &str, workspace: &str) -> String {
    format!("workspace:{organisation}/{workspace}")
}

/// What is held for an account's sandboxes.
pub fn held_account(account: &str) -> String {
    format!("held:{account}")
}

/// What is owed to a provider.
pub fn provider_account(extension: &str) -> String {
    format!("provider:{extension}")
}

/// An organisation, workspace or provider name as it may stand in an account.
pub fn check_name(what: &str, name: &str) -> Result<()> {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
    if (1..=64).contains(&name.len()) && name.bytes().all(fits) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidInput, format!("`{}` is not the name of {what}", printable(name)))
        .with_hint("1 to 64 lower-case letters, digits, `-`, `_` and `.`"))
}

/// An account of somebody's: `org:acme`, `workspace:acme/research`, `key:key_…`. `workspace:research` means the default
/// organisation's.
pub fn parse_account(text: &str) -> Result<String> {
    let wrong = || {
        Error::new(ErrorKind::InvalidInput, format!("`{}` is not an account", printable(text))).with_hint(
            "accounts are written `org:acme`, `workspace:research`, `workspace:acme/research` or `key:key_…`",
        )
    };
    let (kind, name) = text.split_once(':').ok_or_else(wrong)?;
    match kind {
        "org" => check_name("an organisation", name).map(|()| text.to_owned()),
        "workspace" => {
            let (organisation, workspace) = name.split_once('/').unwrap_or((DEFAULT, name));
            check_name("an organisation", organisation)?;
            check_name("a workspace", workspace)?;
            Ok(workspace_account(organisation, workspace))
        }
        "key" => name.parse::<crate::id::KeyId>().map(|key| format!("key:{key}")),
        _ => Err(wrong()),
    }
}

/// Whose spending a budget bounds: an account, or what an actor type or a profile spends in an organisation,
/// `actor:acme/agt` or `profile:acme/profile.agent-dev`. Without a name the default organisation is meant.
pub fn parse_subject(text: &str) -> Result<String> {
    let within = |name: &str| -> Result<(String, String)> {
        let (organisation, name) = name.split_once('/').unwrap_or((DEFAULT, name));
        check_name("an organisation", organisation)?;
        Ok((organisation.to_owned(), name.to_owned()))
    };
    match text.split_once(':') {
        Some(("actor", name)) => {
            let (organisation, actor) = within(name)?;
            actor.parse::<Actor>().map(|actor| format!("actor:{organisation}/{actor}"))
        }
        Some(("profile", name)) if !name.contains('@') && is_profile(name) => {
            let (organisation, profile) = within(name)?;
            check_name("a profile", &profile).map(|()| format!("profile:{organisation}/{profile}"))
        }
        Some(("org" | "workspace" | "key", _)) => parse_account(text),
        _ => Err(Error::new(
            ErrorKind::InvalidInput,
            format!("`{}` is not something with a budget", printable(text)),
        )
        .with_hint(
            "`org:…`, `workspace:…`, `key:…`, `actor:agt`, `actor:acme/agt`, `profile:profile.agent-dev` or \
             `profile:acme/profile.agent-dev`",
        )),
    }
}

/// A profile, with or without its organisation.
fn is_profile(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|name| name.starts_with("profile."))
}

/// An amount that may be moved: above zero, and within bounds.
pub fn check_amount(amount: Money) -> Result<Money> {
    let refuse =
        |why: &str| Err(Error::new(ErrorKind::InvalidInput, format!("{amount} cannot be moved: {why}")));
    match amount {
        amount if amount <= Money::ZERO => refuse("an amount is above zero"),
        amount if amount > MOST => refuse(&format!("the most is {MOST}")),
        amount => Ok(amount),
    }
}

/// How long a budget lasts before it begins anew, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    Day,
    Month,
}

impl Period {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Period {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "day" => Ok(Self::Day),
            "month" => Ok(Self::Month),
            _ => Err(Error::new(ErrorKind::InvalidInput, format!("`{}` is not a period", printable(text)))
                .with_hint("`day` or `month`")),
        }
    }
}

/// Why money moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Paid in from outside.
    Credit,
    /// Taken out again, or put right.
    Adjustment,
    /// Set aside for a sandbox, or given back while it lives.
    Hold,
    /// The end of a hold: what was used is posted, the rest goes back. Nothing used is a void.
    Settlement,
}

impl Kind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Credit => "credit",
            Self::Adjustment => "adjustment",
            Self::Hold => "hold",
            Self::Settlement => "settlement",
        }
    }
}

impl std::str::FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Credit, Self::Adjustment, Self::Hold, Self::Settlement]
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| {
                Error::new(ErrorKind::InvalidInput, format!("`{}` is no kind of entry", printable(text)))
            })
    }
}

/// One line of the ledger: so much more, or less, on one account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Entry {
    /// Its place in the order of all entries.
    pub position: i64,
    /// Entries with the same transaction sum to zero.
    pub transaction: String,
    pub kind: Kind,
    pub account: String,
    pub amount: Money,
    /// What the account had afterwards.
    pub balance: Money,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<SandboxId>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub memo: String,
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
}

/// An account as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Account {
    pub account: String,
    /// What can be spent now; holds are already off.
    pub balance: Money,
    pub held: Money,
    /// How far below zero the balance may go.
    pub overdraft: Money,
}

/// A bound on what is spent in a period, with what was spent in the current one. Holds count in full until they end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Budget {
    pub subject: String,
    pub period: Period,
    pub limit: Money,
    pub used: Money,
}

/// One interval of one meter. The pair with its sandbox is unique, so no time is charged twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Meter {
    pub sandbox_id: SandboxId,
    pub meter: String,
    /// Intervals of one sandbox count from 1.
    pub sequence: u32,
    pub extension: String,
    pub state: Phase,
    /// `2 vCPU at 0.000014 USD/s, reserved`.
    pub what: String,
    /// The price that applies to this interval.
    pub price: String,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// Absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// When the backend was last seen alive in it.
    #[schema(value_type = String, format = DateTime)]
    pub alive_at: Timestamp,
    /// Charged time; zero while it runs and for what is paid once.
    pub time: Dur,
    /// Zero while it runs.
    pub cost: Money,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub assumed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_as_people_write_them() {
        assert_eq!(parse_account("workspace:research").unwrap(), "workspace:default/research");
        assert_eq!(parse_account("workspace:acme/research").unwrap(), "workspace:acme/research");
        assert_eq!(parse_account("org:acme").unwrap(), "org:acme");
        for text in
            ["", "acme", "org:", "org:Acme", "held:org:acme", "world", "key:7", "workspace:a/b/c", "fees"]
        {
            assert!(parse_account(text).is_err(), "{text}");
        }
    }

    #[test]
    fn actors_and_profiles_have_a_budget_in_each_organisation() {
        for (text, whole) in [
            ("actor:agt", "actor:default/agt"),
            ("actor:acme/agt", "actor:acme/agt"),
            ("profile:profile.agent-dev", "profile:default/profile.agent-dev"),
            ("profile:acme/profile.agent-dev", "profile:acme/profile.agent-dev"),
            ("workspace:research", "workspace:default/research"),
        ] {
            assert_eq!(parse_subject(text).unwrap(), whole);
            assert_eq!(parse_subject(whole).unwrap(), whole);
        }
        for text in [
            "profile:agent-dev",
            "profile:acme/agent-dev",
            "profile:Acme/profile.x",
            "profile:a/b/profile.x",
            "profile:acme/profile.x@1.0.0",
            "actor:",
            "actor:acme/",
            "actor:/agt",
            "actor:acme/you",
            "actor:a/b/agt",
        ] {
            assert!(parse_subject(text).is_err(), "{text}");
        }
    }

    #[test]
    fn amounts_that_cannot_be_moved() {
        assert!(check_amount(Money::ZERO).is_err());
        assert!(check_amount(Money::from_nanos(-1)).is_err());
        assert!(check_amount(Money::from_nanos(MOST.nanos() + 1)).is_err());
        assert!(check_amount(MOST).is_ok());
    }

    #[test]
    fn the_most_specific_account_comes_first() {
        let payer = Payer {
            organisation: "acme".into(),
            workspace: "research".into(),
            key: Some("key_1".into()),
            actor: Actor::Agt,
            profile: "profile.x".into(),
        };
        assert_eq!(payer.accounts(), ["key:key_1", "workspace:acme/research", "org:acme"]);
        assert_eq!(payer.subjects()[3..], ["actor:acme/agt", "profile:acme/profile.x"]);
    }
}
