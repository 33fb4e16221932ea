//! What a refusal for want of credits tells: everybody what is missing and how to go on, and what there is only to those
//! who may know it.

use sandboxer_core::ledger::Payer;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_store::{Insert, Inserted, Stored, Update};

use crate::Engine;
use crate::bill::payer_as_caller;
use crate::credits::may_know;

impl Engine {
    /// Writes a new row with what is held for it.
    pub(crate) async fn insert_paid(&self, insert: Insert) -> Result<Inserted> {
        let payer = insert.books.hold.as_ref().map(|hold| hold.payer.clone());
        self.inner.store.insert(insert).await.map_err(|error| discreet(error, payer.as_ref()))
    }

    /// Writes a change that may need more to be held.
    pub(crate) async fn update_paid(&self, update: Update) -> Result<Stored> {
        let payer = update.books.hold.as_ref().map(|hold| hold.payer.clone());
        self.inner.store.update(update).await.map_err(|error| discreet(error, payer.as_ref()))
    }
}

/// The refusal as whoever the sandbox is for may read it. It is kept with the sandbox too, for those who see that.
fn discreet(error: Error, payer: Option<&Payer>) -> Error {
    let Some(payer) = payer.filter(|_| error.kind() == ErrorKind::InsufficientCredits) else { return error };
    let said = |key: &str| {
        error
            .context()
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value.clone())
            .unwrap_or_default()
    };
    let (account, subject, period, needed) =
        (said("account"), said("budget"), said("period"), said("needed"));
    let whose = if account.is_empty() { &subject } else { &account };
    // Whoever owns the store has no key.
    if whose.is_empty() || payer.key.is_none() || may_know(&payer_as_caller(payer), whose) {
        return error;
    }
    let hint = error.hint().map(str::to_owned).unwrap_or_default();
    let told = |message| {
        Error::new(ErrorKind::InsufficientCredits, message)
            .with_hint(format!("{hint}; a shorter TTL needs less"))
    };
    if account.is_empty() {
        let message = format!(
            "{needed} more must be held, and the budget of {subject} for the {period} has no room for it"
        );
        return told(message)
            .with_context("budget", subject)
            .with_context("period", period)
            .with_context("needed", needed);
    }
    let message =
        format!("{needed} more must be held, and the account {account}, which pays, does not have that");
    told(message).with_context("account", account).with_context("needed", needed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandboxer_core::{Actor, KeyId};

    fn refusal(account: &str) -> Error {
        Error::new(ErrorKind::InsufficientCredits, format!("the account {account} has 7.77 USD to spend"))
            .with_hint(format!("ask an operator to add credits to {account}"))
            .with_context("account", account)
            .with_context("available", "7.77 USD")
            .with_context("needed", "9.00 USD")
    }

    fn all(error: &Error) -> String {
        format!("{error} {:?} {:?}", error.hint(), error.context())
    }

    #[test]
    fn what_is_there_is_told_to_those_who_may_know_it() {
        let key = KeyId::generate().to_string();
        let payer = |actor| Payer {
            organisation: "acme".into(),
            workspace: "research".into(),
            key: Some(key.clone()),
            actor,
            profile: "profile.x".into(),
        };
        let own = format!("key:{key}");
        for (account, actor, is_told) in [
            ("org:acme", Actor::Agt, false),
            ("key:key_of_another", Actor::Agt, false),
            (own.as_str(), Actor::Agt, true),
            ("workspace:acme/research", Actor::Agt, true),
            ("org:acme", Actor::Atm, true),
            ("org:acme", Actor::Adm, true),
        ] {
            let told = all(&discreet(refusal(account), Some(&payer(actor))));
            assert_eq!(told.contains("7.77"), is_told, "{told}");
            assert!(
                told.contains(account) && told.contains("9.00 USD") && told.contains("ask an operator"),
                "{told}"
            );
        }
        let local = Payer { key: None, ..payer(Actor::Agt) };
        assert!(all(&discreet(refusal("org:acme"), Some(&local))).contains("7.77"));
    }

    #[test]
    fn a_budget_of_others_is_named_and_not_counted_out() {
        let payer = Payer {
            organisation: "acme".into(),
            workspace: "research".into(),
            key: Some("key_1".into()),
            actor: Actor::Agt,
            profile: "profile.x".into(),
        };
        let full = Error::new(ErrorKind::InsufficientCredits, "the budget of org:acme is 7.77 USD")
            .with_hint("ask an operator to raise it")
            .with_context("budget", "org:acme")
            .with_context("period", "day")
            .with_context("limit", "7.77 USD")
            .with_context("used", "6.66 USD")
            .with_context("needed", "9.00 USD");
        let told = all(&discreet(full, Some(&payer)));
        assert!(!told.contains("7.77") && !told.contains("6.66"), "{told}");
        assert!(told.contains("org:acme for the day") && told.contains("9.00 USD"), "{told}");
    }
}
