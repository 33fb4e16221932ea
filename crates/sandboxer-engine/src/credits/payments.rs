//! Money that comes in, mistakes that are put right, and how far below zero an account may go.

use sandboxer_core::ledger::{Account, Kind, WORLD, parse_account};
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, KeyId, Money, Result};
use sandboxer_store::Transfer;
use serde::{Deserialize, Serialize};

use super::amounts::{check_bound, parse_adjustment, parse_amount};
use super::sight::not_opened;
use crate::caller::Action;
use crate::{Caller, Engine};

/// Money that comes in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreditRequest {
    /// Dollars with at most nine decimals: `25` or `25.00 USD`.
    #[serde(deserialize_with = "quoted")]
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

/// An amount is a text: a number of JSON is not exact everywhere.
fn quoted<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<String, D::Error> {
    struct Amount;
    impl serde::de::Visitor<'_> for Amount {
        type Value = String;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a string such as \"5.00\"")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<String, E> {
            Ok(text.to_owned())
        }
    }
    deserializer.deserialize_str(Amount)
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

/// How far below zero an account may go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitRequest {
    pub account: String,
    /// Zero or more dollars.
    pub overdraft: Money,
}

impl Engine {
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
