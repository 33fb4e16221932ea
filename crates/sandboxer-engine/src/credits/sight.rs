//! Whose accounts a caller may look at: operators at all of them, everybody else at those of their key and workspace. An
//! organisation's account that pays for them is named to them, and what is on it is not.

use sandboxer_core::ledger::{self, FEES, Payer, WORLD, parse_account, workspace_account};
use sandboxer_core::suggest::printable;
use sandboxer_core::{Error, ErrorKind, Result};

use crate::caller::Action;
use crate::{Caller, Engine};

impl Engine {
    /// An account that is named, if the caller may look at it and there is one.
    pub(crate) async fn opened_account(&self, caller: &Caller, text: &str) -> Result<String> {
        let name = visible_account(caller, text)?;
        let found = self.inner.store.account(&name).await?;
        found.map(|found| found.account).ok_or_else(|| not_opened(caller, &name))
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

pub(super) fn payer_of(caller: &Caller) -> Payer {
    Payer {
        organisation: caller.seat.organisation.clone(),
        workspace: caller.seat.workspace.clone(),
        key: caller.key_text(),
        actor: caller.actor,
        profile: String::new(),
    }
}

/// The accounts whose balance everybody may see of themselves.
pub(super) fn own_accounts(caller: &Caller) -> Vec<String> {
    let mut out: Vec<String> = caller.key_text().map(|key| format!("key:{key}")).into_iter().collect();
    out.push(workspace_account(&caller.seat.organisation, &caller.seat.workspace));
    out
}

/// Whether a caller may know what is on an account, or is left of its budget.
pub(crate) fn may_know(caller: &Caller, account: &str) -> bool {
    caller.may(Action::Operate) || own_accounts(caller).iter().any(|own| own == account)
}

/// An account by its name, if the caller may look at it. Operators may look at those of the house too.
pub(super) fn visible_account(caller: &Caller, text: &str) -> Result<String> {
    if caller.may(Action::Operate) {
        let of_house = text == WORLD || text == FEES || text.starts_with("provider:");
        return match text.strip_prefix("held:") {
            Some(account) => parse_account(account).map(|account| ledger::held_account(&account)),
            None if of_house && text.len() <= 128 => Ok(text.to_owned()),
            None => parse_account(text),
        };
    }
    let account = parse_account(text)?;
    if may_know(caller, &account) {
        return Ok(account);
    }
    Err(Error::new(ErrorKind::Denied, format!("{account} is not an account of this key"))
        .with_hint("`sandboxer credits show` shows those that are"))
}

pub(super) fn not_opened(caller: &Caller, account: &str) -> Error {
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

#[cfg(test)]
mod tests {
    use super::*;
    use sandboxer_core::ledger::Seat;
    use sandboxer_core::{Actor, KeyId};

    #[test]
    fn whose_account_one_may_look_at() {
        let seat = Seat { organisation: "acme".into(), workspace: "research".into() };
        let key = KeyId::generate();
        let agent = Caller { seat, ..Caller::with_key(Actor::Agt, key) };
        assert!(visible_account(&agent, "workspace:acme/research").is_ok());
        assert!(visible_account(&agent, &format!("key:{key}")).is_ok());
        for other in ["workspace:acme/other", "org:acme", "workspace:research"] {
            assert_eq!(visible_account(&agent, other).unwrap_err().kind(), ErrorKind::Denied, "{other}");
        }
        for house in ["world", "fees", "provider:ext.e2b", "held:org:acme"] {
            assert!(visible_account(&agent, house).is_err(), "{house}");
            assert!(visible_account(&Caller::local_admin(), house).is_ok(), "{house}");
        }
    }
}
