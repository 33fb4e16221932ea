//! What is set aside for a sandbox: raised before it may cost more, lowered when it cannot.

use sandboxer_core::bill::Bill;
use sandboxer_core::event::NewEvent;
use sandboxer_core::ledger::Payer;
use sandboxer_core::sandbox::{Quote, Sandbox, SandboxRecord};
use sandboxer_core::tariff::ProviderKey;
use sandboxer_core::{Dur, Error, ErrorKind, Result};
use sandboxer_store::{Books, Hold};
use serde_json::json;

use super::Money;
use crate::{Caller, Engine};

impl Engine {
    /// Sets aside what the bill says is to be held.
    pub(crate) fn hold_for(&self, record: &SandboxRecord) -> Money {
        let Some(bill) = &record.bill else { return Money::default() };
        let (payer, amount) = (bill.payer.clone(), bill.held);
        let fact = json!({ "held": amount, "extension": bill.tariff.extension, "price": bill.tariff.price });
        Money {
            books: Books { hold: Some(Hold { payer, amount, at: self.now() }), ..Books::default() },
            facts: vec![NewEvent::fact("credits.held", self.now(), fact)],
        }
    }

    /// What the dearer of two places costs, while it is open which of them it will be. When it is known, the hold follows.
    pub(crate) fn hold_for_either(&self, record: &mut SandboxRecord, other: Option<&Bill>) -> Money {
        let Some(other) = other else { return Money::default() };
        match &mut record.bill {
            Some(bill) if bill.held >= other.held => return Money::default(),
            Some(bill) => bill.held = other.held,
            None => record.bill = Some(other.clone()),
        }
        self.hold_for(record)
    }

    /// Whether what is held is what the quote of the record's own place says; it is not after a choice of two.
    pub(crate) async fn hold_as_quoted(&self, record: &mut SandboxRecord) -> Result<Money> {
        match &record.bill {
            Some(bill) if bill.held != record.sandbox.quote.amount => self.rebill(record).await,
            _ => Ok(Money::default()),
        }
    }

    /// Says before anything is ended whether its successor can be paid with what it gives back.
    pub(crate) async fn require_credits(
        &self,
        caller: &Caller,
        old: &SandboxRecord,
        quote: &Quote,
    ) -> Result<()> {
        let given_back = old.bill.as_ref().map_or(0, |bill| bill.held.nanos());
        if quote.amount.nanos() <= given_back {
            return Ok(());
        }
        let payer = Payer {
            organisation: caller.seat.organisation.clone(),
            workspace: caller.seat.workspace.clone(),
            key: caller.key_text(),
            actor: caller.actor,
            profile: String::new(),
        };
        let mut free = 0;
        for name in payer.accounts() {
            if let Some(account) = self.inner.store.account(&name).await? {
                free = account.balance.nanos() + account.overdraft.nanos();
                break;
            }
        }
        if quote.amount.nanos() <= given_back + free {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InsufficientCredits,
            format!("a new one needs {} to be held, and that is not there", quote.amount),
        )
        .with_hint("the old one is still there; `sandboxer credits show` tells which account pays"))
    }

    /// What a paused sandbox needs to go on at the price of now, set aside before it does.
    pub(crate) fn hold_for_resume(&self, record: &mut SandboxRecord) -> Result<Money> {
        let mut now = record.clone();
        self.refresh_tariff(&mut now);
        let money = self.raise_hold(&mut now, record.sandbox.expires_at)?;
        // The interval that runs keeps its price; only what is held changes.
        if let (Some(bill), Some(raised)) = (record.bill.as_mut(), now.bill) {
            bill.held = raised.held;
        }
        record.sandbox.quote = now.sandbox.quote;
        Ok(money)
    }

    /// Gives back what is held beyond a life until then: a longer one was planned and did not come about.
    pub(crate) fn lower_hold(&self, record: &mut SandboxRecord, until: jiff::Timestamp) -> Result<Money> {
        let now = self.now();
        let Some(bill) = record.bill.as_mut().filter(|bill| !bill.settled) else {
            return Ok(Money::default());
        };
        let needed = bill.needed(until, now)?;
        if needed >= bill.held {
            return Ok(Money::default());
        }
        bill.held = needed;
        self.requote(record, until)?;
        Ok(self.hold_for(record))
    }

    /// Makes the hold large enough for a life until then; never smaller.
    pub(crate) fn raise_hold(&self, record: &mut SandboxRecord, until: jiff::Timestamp) -> Result<Money> {
        let now = self.now();
        let Some(bill) = record.bill.as_mut().filter(|bill| !bill.settled) else {
            return Ok(Money::default());
        };
        let needed = bill.needed(until, now)?;
        let whole = match bill.terms.provider_key {
            ProviderKey::Platform => needed,
            // The workspace pays the provider itself: its bound is for both parts.
            ProviderKey::Own => {
                let quote = bill.tariff.quote(life(&record.sandbox, until), bill.terms)?;
                quote.upstream.checked_add(quote.fee)?
            }
        };
        if let Some(most) = record.sandbox.route.max_cost_total.filter(|most| whole > *most) {
            return Err(Error::new(
                ErrorKind::Refused,
                format!("it would cost up to {whole}, and the route allows {most} in all"),
            )
            .with_hint("extend it by less, or create another one with a higher `--max-cost`"));
        }
        if needed <= bill.held {
            return Ok(Money::default());
        }
        bill.held = needed;
        self.requote(record, until)?;
        Ok(self.hold_for(record))
    }

    /// What the quote says after the hold has changed.
    fn requote(&self, record: &mut SandboxRecord, until: jiff::Timestamp) -> Result<()> {
        let Some(bill) = &record.bill else { return Ok(()) };
        let quote = bill.tariff.quote(life(&record.sandbox, until), bill.terms)?;
        record.sandbox.quote = Quote { amount: bill.held, ..quote };
        Ok(())
    }
}

/// From its creation until then.
fn life(sandbox: &Sandbox, until: jiff::Timestamp) -> Dur {
    let millis = until.as_millisecond() - sandbox.created_at.as_millisecond();
    Dur::from_millis(u64::try_from(millis).unwrap_or_default())
}
