//! Credits: accounts, what is paid in, budgets, entries and meters, as whoever asks may see them.
//!
//! Operators see all of it. Everybody else sees the balance of their own key and workspace and of the account that pays
//! for them, and the entries and meters of their own sandboxes.

mod provider_keys;

use jiff::Timestamp;
use sandboxer_core::ledger::{
    self, Account, Budget, Entry, FEES, Kind, MOST, Meter, Payer, Period, WORLD, check_amount, parse_account,
    parse_subject, workspace_account,
};
use sandboxer_core::page::{Limit, Page};
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, KeyId, Money, Result, SandboxId};
use sandboxer_store::{EntryFilter, MeterFilter, Transfer};
use serde::{Deserialize, Serialize};

use crate::caller::Action;
use crate::{Caller, Engine};

pub use provider_keys::{ProviderKeyRequest, ProviderKeyView, parse_workspace};

/// The word for entries of every account.
pub const ALL_ACCOUNTS: &str = "all";

/// What a caller may know about balances and budgets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Credits {
    /// The account that the caller's next sandbox is charged to.
    pub pays: String,
    pub accounts: Vec<Account>,
    pub budgets: Vec<Budget>,
}

/// Money that comes in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreditRequest {
    /// Dollars with at most nine decimals: `25` or `25.00 USD`.
    pub amount: String,
    /// `org:acme`, `workspace:acme/research` or `key:key_…`; without it the account that pays for the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// What it is for. An adjustment has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub memo: String,
    #[serde(default, skip_serializing_if = "CreditKind::is_credit")]
    pub kind: CreditKind,
    /// The same id with the same content is the same payment. `Idempotency-Key` means this where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Whether money comes in, or a mistake is put right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CreditKind {
    #[default]
    Credit,
    /// More with an amount above zero, less with one below it, on an account that is open; never below its limit.
    Adjustment,
}

impl CreditKind {
    fn is_credit(&self) -> bool {
        *self == Self::Credit
    }
}

/// A payment that is in the books.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Credited {
    pub transaction: String,
    /// Below zero where an adjustment took something.
    pub amount: Money,
    /// The account as it stands now.
    pub account: Account,
}

/// Which entries are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryQuery {
    /// An account, [`ALL_ACCOUNTS`], or the one that pays for the caller.
    pub account: Option<String>,
    pub sandbox: Option<SandboxId>,
    pub from: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// How far below zero an account may go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitRequest {
    pub account: String,
    /// Zero or more dollars.
    pub overdraft: Money,
}

/// A bound on what somebody spends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetRequest {
    /// `org:acme`, `workspace:acme/research`, `key:key_…`, `actor:agt` or `profile:profile.agent-dev`.
    pub subject: String,
    pub period: Period,
    /// Zero or more dollars; holds count in full.
    pub limit: Money,
}

/// Whether the books are right: then nothing is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BooksAudit {
    pub ok: bool,
    pub transactions: u64,
    pub entries: u64,
    pub wrong: Vec<String>,
}

/// An amount that somebody writes and that can be moved; the error says what is wrong with it.
pub fn parse_amount(text: &str) -> Result<Money> {
    check_amount(own_currency(text)?)
}

/// An amount by which an account is put right: above or below zero.
pub fn parse_adjustment(text: &str) -> Result<Money> {
    let amount = own_currency(text)?;
    if amount == Money::ZERO {
        return Err(Error::new(ErrorKind::InvalidInput, "an adjustment of zero changes nothing"));
    }
    check_amount(Money::from_nanos(amount.nanos().abs())).map(|_| amount)
}

fn own_currency(text: &str) -> Result<Money> {
    let bare = text.trim();
    let word = bare.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    let has_number = bare.len() > word.len();
    if has_number
        && word.len() == 3
        && word.bytes().all(|b| b.is_ascii_uppercase())
        && word != Money::CURRENCY
    {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("`{}` is in {word}, and accounts are kept in {}", printable(text), Money::CURRENCY),
        )
        .with_hint("change it first; no rate of exchange is known here"));
    }
    text.parse()
}

/// An amount that is a bound: zero means nothing at all.
fn check_bound(amount: Money) -> Result<Money> {
    if (Money::ZERO..=MOST).contains(&amount) {
        return Ok(amount);
    }
    Err(Error::new(ErrorKind::InvalidInput, format!("{amount} is not a limit"))
        .with_hint(format!("limits go from 0 to {MOST}")))
}

impl Engine {
    /// Accounts and budgets that the caller may see, or the one account that is named.
    pub async fn credits(&self, caller: &Caller, account: Option<&str>) -> Result<Credits> {
        caller.require(Action::UseSandboxes)?;
        let pays = self.paying_account(caller).await?;
        let named = account.map(|text| visible_account(caller, text, &pays)).transpose()?;
        let all = caller.may(Action::Operate);
        let own = own_accounts(caller, &pays);
        let accounts = match &named {
            Some(name) => {
                vec![self.inner.store.account(name).await?.ok_or_else(|| not_opened(caller, name))?]
            }
            None if all => self.inner.store.accounts().await?,
            None => {
                let mut found = Vec::new();
                for name in &own {
                    found.extend(self.inner.store.account(name).await?);
                }
                found
            }
        };
        let mut budgets = self.inner.store.budgets(self.now()).await?;
        budgets.retain(|budget| match &named {
            Some(name) => budget.subject == *name,
            None => all || own.contains(&budget.subject),
        });
        Ok(Credits { pays, accounts, budgets })
    }

    /// An account that is named, if the caller may look at it and there is one.
    pub(crate) async fn opened_account(&self, caller: &Caller, text: &str) -> Result<String> {
        let name = visible_account(caller, text, &self.paying_account(caller).await?)?;
        let found = self.inner.store.account(&name).await?;
        found.map(|found| found.account).ok_or_else(|| not_opened(caller, &name))
    }

    /// An account of a key is one of a key that there is: nobody could ever spend what is on another.
    async fn check_key_account(&self, account: &str) -> Result<()> {
        let Some(key) = account.strip_prefix("key:") else { return Ok(()) };
        let known = self.inner.store.key_list().await?;
        if known.iter().any(|known| known.key_id.to_string() == key) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotFound, format!("there is no key {key}"))
            .with_hint("`sandboxer keys list` shows those that there are"))
    }

    /// Pays in, or puts right. Repeated with the same id it is done once.
    pub async fn credits_add(&self, caller: &Caller, request: &CreditRequest) -> Result<Credited> {
        caller.require(Action::ManageMoney)?;
        let (amount, kind) = match request.kind {
            CreditKind::Credit => (parse_amount(&request.amount)?, Kind::Credit),
            CreditKind::Adjustment => (parse_adjustment(&request.amount)?, Kind::Adjustment),
        };
        let account = match &request.account {
            Some(text) => parse_account(text)?,
            None => self.paying_account(caller).await?,
        };
        check_memo(&request.memo)?;
        match request.kind {
            CreditKind::Credit => self.check_key_account(&account).await?,
            CreditKind::Adjustment => {
                if request.memo.trim().is_empty() {
                    return Err(Error::new(ErrorKind::InvalidInput, "an adjustment has a memo")
                        .with_hint("say what is put right, such as `invoice 17 was paid in twice`"));
                }
                if self.inner.store.account(&account).await?.is_none() {
                    return Err(not_opened(caller, &account));
                }
            }
        }
        let id = match &request.id {
            Some(id) => checked_id(id)?.to_owned(),
            None => KeyId::generate().to_string().trim_start_matches(KeyId::PREFIX).to_owned(),
        };
        let transfer = Transfer {
            // Apart from the transactions of sandboxes, whatever somebody calls a payment.
            id: format!("credit:{id}"),
            kind,
            from: if amount < Money::ZERO { account.clone() } else { WORLD.into() },
            to: if amount < Money::ZERO { WORLD.into() } else { account.clone() },
            amount: Money::from_nanos(amount.nanos().abs()),
            memo: request.memo.clone(),
            time: self.now(),
        };
        self.inner.store.transfer(&transfer).await.map_err(|error| match error.kind() {
            ErrorKind::Conflict => Error::new(
                ErrorKind::IdempotencyMismatch,
                format!("a payment with the id `{}` was made before with another content", printable(&id)),
            )
            .with_hint("use a new id for a new payment"),
            _ => error,
        })?;
        let account =
            self.inner.store.account(&account).await?.ok_or_else(|| not_opened(caller, &account))?;
        Ok(Credited { transaction: transfer.id, amount, account })
    }

    pub async fn credits_limit(&self, caller: &Caller, request: &LimitRequest) -> Result<Account> {
        caller.require(Action::ManageMoney)?;
        let account = parse_account(&request.account)?;
        self.check_key_account(&account).await?;
        self.inner.store.overdraft(&account, check_bound(request.overdraft)?).await
    }

    pub async fn budget_set(&self, caller: &Caller, request: &BudgetRequest) -> Result<Budget> {
        caller.require(Action::ManageMoney)?;
        let subject = parse_subject(&request.subject)?;
        self.inner.store.budget(&subject, request.period, Some(check_bound(request.limit)?)).await?;
        self.budget_of(&subject, request.period).await
    }

    /// The removed one.
    pub async fn budget_remove(&self, caller: &Caller, subject: &str, period: Period) -> Result<Budget> {
        caller.require(Action::ManageMoney)?;
        let subject = parse_subject(subject)?;
        let budget = self.budget_of(&subject, period).await?;
        self.inner.store.budget(&subject, period, None).await?;
        Ok(budget)
    }

    async fn budget_of(&self, subject: &str, period: Period) -> Result<Budget> {
        let budgets = self.inner.store.budgets(self.now()).await?;
        budgets.into_iter().find(|one| one.subject == subject && one.period == period).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("{subject} has no budget for a {period}"))
                .with_hint("`sandboxer credits budget list` shows those that there are")
        })
    }

    /// Entries, oldest first. The cursor is a place in the books.
    pub async fn credit_entries(
        &self,
        caller: &Caller,
        query: &EntryQuery,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<Entry>> {
        caller.require(Action::UseSandboxes)?;
        let after = cursor.map(position).transpose()?.unwrap_or(0);
        check_range(query.from, query.until)?;
        let account = match &query.account {
            Some(text) if text == ALL_ACCOUNTS => {
                caller.require(Action::Operate)?;
                None
            }
            Some(text) => Some(self.opened_account(caller, text).await?),
            // One sandbox's money is followed through all accounts.
            None if query.sandbox.is_some() => None,
            None => Some(self.paying_account(caller).await?),
        };
        // Whose a sandbox was is asked of its hold, which outlives it.
        let subject = caller.visible_key().map(|key| format!("key:{key}"));
        if let (Some(_), Some(sandbox)) = (&subject, query.sandbox) {
            let any =
                EntryFilter { sandbox: Some(sandbox), subject: subject.clone(), ..EntryFilter::default() };
            if self.inner.store.entries(&any, 0, Limit::new(1)?).await?.is_empty() {
                self.load(caller, sandbox).await?;
            }
        }
        let filter =
            EntryFilter { account, sandbox: query.sandbox, subject, from: query.from, until: query.until };
        let mut items = self.inner.store.entries(&filter, after, limit).await?;
        let next_cursor = (items.len() >= limit.get() as usize)
            .then(|| items.last().map(|last| last.position.to_string()))
            .flatten();
        if !caller.may(Action::Operate) {
            // What the house has is not theirs to know.
            let payers = payer_of(caller).accounts();
            items.retain(|entry| {
                let account = entry.account.strip_prefix("held:").unwrap_or(&entry.account);
                payers.iter().any(|payer| payer == account)
            });
        }
        Ok(Page { items, next_cursor })
    }

    /// Meters, newest first.
    pub async fn meters(
        &self,
        caller: &Caller,
        filter: MeterFilter,
        cursor: Option<&str>,
        limit: Limit,
    ) -> Result<Page<Meter>> {
        caller.require(Action::UseSandboxes)?;
        check_range(filter.from, filter.until)?;
        let filter = MeterFilter { owner_key: caller.visible_key(), ..filter };
        if let (Some(_), Some(sandbox)) = (&filter.owner_key, filter.sandbox) {
            let any = MeterFilter {
                sandbox: Some(sandbox),
                owner_key: filter.owner_key.clone(),
                ..MeterFilter::default()
            };
            if self.inner.store.meters(&any, None, Limit::new(1)?).await?.items.is_empty() {
                self.load(caller, sandbox).await?;
            }
        }
        self.inner.store.meters(&filter, cursor, limit).await
    }

    pub async fn credits_audit(&self, caller: &Caller) -> Result<BooksAudit> {
        caller.require(Action::Operate)?;
        let audit = self.inner.store.audit().await?;
        Ok(BooksAudit {
            ok: audit.wrong.is_empty(),
            transactions: audit.transactions,
            entries: audit.entries,
            wrong: audit.wrong,
        })
    }

    /// The account that pays for what the caller creates: the most specific one that was opened.
    pub(crate) async fn paying_account(&self, caller: &Caller) -> Result<String> {
        let payer = payer_of(caller);
        for account in payer.accounts() {
            if self.inner.store.account(&account).await?.is_some() {
                return Ok(account);
            }
        }
        Ok(payer.default_account())
    }
}

fn payer_of(caller: &Caller) -> Payer {
    Payer {
        organisation: caller.seat.organisation.clone(),
        workspace: caller.seat.workspace.clone(),
        key: caller.key_text(),
        actor: caller.actor,
        profile: String::new(),
    }
}

/// The accounts whose balance everybody may see of themselves. That which pays for them is one, whosever it is: a
/// create that it cannot pay for says what is there.
fn own_accounts(caller: &Caller, pays: &str) -> Vec<String> {
    let mut out: Vec<String> = caller.key_text().map(|key| format!("key:{key}")).into_iter().collect();
    out.push(workspace_account(&caller.seat.organisation, &caller.seat.workspace));
    if out.iter().all(|account| account != pays) {
        out.push(pays.to_owned());
    }
    out
}

/// An account by its name, if the caller may look at it. Operators may look at those of the house too.
fn visible_account(caller: &Caller, text: &str, pays: &str) -> Result<String> {
    if caller.may(Action::Operate) {
        let of_house = text == WORLD || text == FEES || text.starts_with("provider:");
        return match text.strip_prefix("held:") {
            Some(account) => parse_account(account).map(|account| ledger::held_account(&account)),
            None if of_house && text.len() <= 128 => Ok(text.to_owned()),
            None => parse_account(text),
        };
    }
    let account = parse_account(text)?;
    if own_accounts(caller, pays).contains(&account) {
        return Ok(account);
    }
    Err(Error::new(ErrorKind::Denied, format!("{account} is not an account of this key"))
        .with_hint("`sandboxer credits show` shows those that are"))
}

fn not_opened(caller: &Caller, account: &str) -> Error {
    let hint = match parse_account(account) {
        Ok(_) if caller.may(Action::ManageMoney) => {
            format!("`sandboxer credits add AMOUNT --account {account}` opens it")
        }
        Ok(_) => format!("ask an operator to add credits to {account}"),
        // What is held, owed or earned comes about by itself.
        Err(_) => "the first sandbox that costs something opens it".to_owned(),
    };
    Error::new(ErrorKind::NotFound, format!("the account {} was not opened yet", printable(account)))
        .with_hint(hint)
}

/// Characters that turn the direction of what follows, or break a line: the text would read as another one.
fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn check_memo(memo: &str) -> Result<()> {
    if memo.len() <= 256 && !memo.chars().any(misleads) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidInput,
        "a memo has at most 256 bytes, without control characters and marks of direction",
    ))
}

fn checked_id(id: &str) -> Result<&str> {
    if (1..=255).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(id);
    }
    Err(Error::new(
        ErrorKind::InvalidInput,
        "a payment's id has 1 to 255 visible ASCII characters without spaces",
    ))
}

pub(crate) fn check_range(from: Option<Timestamp>, until: Option<Timestamp>) -> Result<()> {
    match (from, until) {
        (Some(from), Some(until)) if from >= until => {
            Err(Error::new(ErrorKind::InvalidInput, format!("nothing lies between {from} and {until}"))
                .with_hint("`from` is the first moment that counts, `until` the first that does not"))
        }
        _ => Ok(()),
    }
}

fn position(cursor: &str) -> Result<i64> {
    cursor.parse().ok().filter(|position| *position >= 0).ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, format!("`{}` is not a cursor", printable(cursor)))
            .with_hint("take `next_cursor` of the page before, as it is")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandboxer_core::Actor;
    use sandboxer_core::ledger::Seat;

    #[test]
    fn amounts_say_what_is_wrong_with_them() {
        assert_eq!(parse_amount("12.5").unwrap().to_string(), "12.50 USD");
        assert_eq!(parse_amount("12.5 USD").unwrap().to_string(), "12.50 USD");
        for (text, why) in [
            ("5 EUR", "is in EUR"),
            ("5EUR", "is in EUR"),
            ("NaN", "a decimal number was expected"),
            ("inf", "a decimal number was expected"),
            ("0", "above zero"),
            ("-3", "above zero"),
            ("0.0000000001", "more than nine decimals"),
            ("99999999999999999999", "too large"),
            ("1000000000.01", "the most is"),
            ("1e3", "a decimal number was expected"),
        ] {
            let error = parse_amount(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn whose_account_one_may_look_at() {
        const PAYS: &str = "workspace:acme/research";
        let seat = Seat { organisation: "acme".into(), workspace: "research".into() };
        let key = KeyId::generate();
        let agent = Caller { seat, ..Caller::with_key(Actor::Agt, key) };
        assert!(visible_account(&agent, "workspace:acme/research", PAYS).is_ok());
        assert!(visible_account(&agent, &format!("key:{key}"), PAYS).is_ok());
        for other in ["workspace:acme/other", "org:acme", "workspace:research"] {
            assert_eq!(
                visible_account(&agent, other, PAYS).unwrap_err().kind(),
                ErrorKind::Denied,
                "{other}"
            );
        }
        for house in ["world", "fees", "provider:ext.e2b", "held:org:acme"] {
            assert!(visible_account(&agent, house, PAYS).is_err(), "{house}");
            assert!(visible_account(&Caller::local_admin(), house, PAYS).is_ok(), "{house}");
        }
        assert!(visible_account(&agent, "org:acme", "org:acme").is_ok(), "it pays");
    }
}
