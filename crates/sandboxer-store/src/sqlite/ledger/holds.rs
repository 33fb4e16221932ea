//! What is held for a sandbox: taken, changed and settled. One query reads all that is looked at.

use jiff::Timestamp;
use rusqlite::{Connection, Row};
use sandboxer_core::ledger::{FEES, Kind, Payer, held_account, provider_account};
use sandboxer_core::page::Limit;
use sandboxer_core::{Actor, Error, ErrorKind, SandboxId};
use serde_json::{Value, json};

use super::amount::{self, money};
use super::budgets::{self, Standing as BudgetStanding};
use super::days::{Days, Parts};
use super::post::{Head, Sheet, Standing, defect, latest};
use crate::ledger::{Hold, Settle, Told};
use crate::sqlite::fault::{Attempt, Fault};
use crate::sqlite::query::query;
use crate::sqlite::rows::{micros, moment};

/// Everything that a change of a hold looks at: the hold, the accounts, the budgets. What is held for an account is an
/// account of its own, and is read with it.
pub(super) const READ: &str = concat!(
    "SELECT 'hold', account, amount, turns, settled_at, subjects, parts FROM holds WHERE sandbox_id = ?1 \
    UNION ALL SELECT 'account', name, balance, overdraft, NULL, NULL, NULL FROM accounts WHERE name IN (\
        SELECT value FROM json_each(?2) UNION ALL SELECT 'held:' || value FROM json_each(?2) \
        UNION ALL SELECT account FROM holds WHERE sandbox_id = ?1 \
        UNION ALL SELECT 'held:' || account FROM holds WHERE sandbox_id = ?1) \
    UNION ALL SELECT 'budget', b.subject, b.most, (SELECT coalesce(sum(s.used), 0) FROM spend s \
        WHERE s.subject = b.subject AND s.day BETWEEN iif(b.period = 'day', ?4, ?5) AND iif(b.period = 'day', ?4, ?6)), \
        NULL, b.period, NULL FROM json_each(coalesce((SELECT subjects FROM holds WHERE sandbox_id = ?1), ?3)) j \
        JOIN budgets b ON b.subject = j.value UNION ALL ",
    latest!(", NULL, NULL, NULL, NULL")
);

const WRITE: &str = "INSERT INTO holds (sandbox_id, account, amount, turns, subjects, parts, settled_at, told) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (sandbox_id) DO UPDATE SET account = excluded.account, amount = excluded.amount, \
    turns = excluded.turns, parts = excluded.parts, settled_at = excluded.settled_at, told = excluded.told";
const SPEND: &str = "INSERT INTO spend (subject, day, used) SELECT s.value, c.value ->> 0, c.value ->> 1 \
    FROM json_each(?) s, json_each(?) c WHERE true \
    ON CONFLICT (subject, day) DO UPDATE SET used = used + excluded.used";

/// A hold as it is stored.
struct Held {
    account: String,
    amount: i64,
    turns: i64,
    is_settled: bool,
    subjects: String,
    parts: Parts,
}

impl Held {
    fn of(row: &Row<'_>) -> Attempt<Self> {
        Ok(Self {
            account: row.get(1)?,
            amount: row.get(2)?,
            turns: row.get(3)?,
            is_settled: row.get::<_, Option<i64>>(4)?.is_some(),
            subjects: row.get(5)?,
            parts: serde_json::from_str(row.get_ref(6)?.as_str()?)?,
        })
    }
}

/// What was read.
#[derive(Default)]
struct Known {
    held: Option<Held>,
    sheet: Sheet,
    budgets: Vec<BudgetStanding>,
}

impl Known {
    fn read(
        connection: &Connection,
        sandbox: &str,
        accounts: &[String],
        subjects: &str,
        days: Days,
    ) -> Attempt<Self> {
        let mut known = Self::default();
        query(READ)
            .bind(sandbox)
            .bind(Value::from(accounts).to_string())
            .bind(subjects)
            .bind(days.day)
            .bind(days.first)
            .bind(days.last)
            .each(connection, |row| known.see(row))?;
        Ok(known)
    }

    fn see(&mut self, row: &Row<'_>) -> Attempt<()> {
        match row.get_ref(0)?.as_str()? {
            "hold" => self.held = Some(Held::of(row)?),
            "account" => {
                self.sheet.know(row.get(1)?, Standing { balance: row.get(2)?, overdraft: row.get(3)? });
            }
            "latest" => self.sheet.know_latest(row.get(2)?),
            _ => self.budgets.push(BudgetStanding {
                subject: row.get(1)?,
                most: row.get(2)?,
                used: row.get(3)?,
                period: row.get_ref(5)?.as_str()?.parse()?,
            }),
        }
        Ok(())
    }

    /// Who pays: the first of the payer's accounts that was opened.
    fn payer(&self, payer: &Payer) -> String {
        let opened = payer.accounts().into_iter().find(|account| self.sheet.standing(account).is_some());
        opened.unwrap_or_else(|| payer.default_account())
    }

    fn check_account(&self, payer: &Payer, account: &str, more: i64) -> Attempt<()> {
        let standing = self.sheet.standing(account);
        let available = standing.unwrap_or_default().available();
        if available >= more {
            return Ok(());
        }
        let has = match standing {
            Some(_) => format!("the account {account} has {} to spend", money(available)),
            None => format!("the account {account} was not opened"),
        };
        Err(Error::new(
            ErrorKind::InsufficientCredits,
            format!("{has}, and {} more must be held", money(more)),
        )
        .with_hint(match payer.actor {
            Actor::Adm => format!("`sandboxer credits add AMOUNT --account {account}` adds credits"),
            // Nobody else may.
            Actor::Agt | Actor::Atm => format!("ask an operator to add credits to {account}"),
        })
        .with_context("account", account)
        .with_context("available", money(available).to_string())
        .with_context("needed", money(more).to_string())
        .into())
    }
}

/// Brings what is held to an amount.
pub(super) fn hold(connection: &Connection, sandbox: SandboxId, hold: &Hold) -> Attempt<()> {
    let wanted = amount::nanos("a hold", hold.amount)?;
    let sandbox = sandbox.to_string();
    let days = Days::of(hold.at);
    let subjects = Value::from(hold.payer.subjects()).to_string();
    let mut known = Known::read(connection, &sandbox, &hold.payer.accounts(), &subjects, days)?;
    let is_new = known.held.is_none();
    let mut held = known.held.take().unwrap_or_else(|| Held {
        account: known.payer(&hold.payer),
        amount: 0,
        turns: 0,
        is_settled: false,
        subjects,
        parts: Parts::default(),
    });
    if held.turns == 0 && !held.is_settled {
        // Nothing has moved yet: whoever would pay now does.
        held.account = known.payer(&hold.payer);
    }
    let more = wanted - held.amount;
    if more == 0 {
        // A hold of nothing says whose sandbox it is.
        return if is_new { write(connection, known.sheet, &sandbox, &held, None, &[]) } else { Ok(()) };
    }
    if held.is_settled {
        return Err(Fault::internal(format!("the hold of {sandbox} is settled and cannot be raised")));
    }
    let change = if more > 0 {
        known.check_account(&hold.payer, &held.account, more)?;
        budgets::check(&known.budgets, hold.payer.actor, more)?;
        held.parts.add(days.day, more)?
    } else {
        held.parts.take(-more)?
    };
    held.amount = wanted;
    held.turns += 1;
    let head = Head {
        id: &format!("{sandbox}/hold/{}", held.turns),
        kind: Kind::Hold,
        sandbox: Some(&sandbox),
        memo: &hold.payer.profile,
        time: micros(hold.at),
    };
    known.sheet.post(&head, &[(&held.account, -more), (&held_account(&held.account), more)])?;
    write(connection, known.sheet, &sandbox, &held, None, &change)
}

/// Ends a hold: what was used is posted, the rest goes back.
pub(super) fn settle(connection: &Connection, sandbox: SandboxId, settle: &Settle) -> Attempt<()> {
    let upstream = amount::nanos("a charge", settle.settlement.upstream)?;
    let fee = amount::nanos("a fee", settle.settlement.fee)?;
    let sandbox = sandbox.to_string();
    let provider = provider_account(&settle.told.extension);
    let mut others = settle.payer.accounts();
    others.extend([provider.clone(), FEES.to_owned()]);
    let mut known = Known::read(connection, &sandbox, &others, "[]", Days::of(settle.at))?;
    let charged = upstream.saturating_add(fee);
    let Some(mut held) = known.held.take() else {
        if charged > 0 {
            tracing::error!(%sandbox, charged, "nothing was held for a sandbox that has a cost");
        }
        return Ok(());
    };
    if held.is_settled {
        return Ok(());
    }
    if held.turns == 0 {
        held.account = known.payer(&settle.payer);
    }
    if charged > held.amount {
        let message = format!(
            "{} were to be charged for {sandbox} and {} are held",
            money(charged),
            money(held.amount)
        );
        return Err(Fault::internal(message));
    }
    let rest = held.amount - charged;
    let change = held.parts.take(rest)?;
    let of_hold = held_account(&held.account);
    let lines = [
        (of_hold.as_str(), -held.amount),
        (provider.as_str(), upstream),
        (FEES, fee),
        (held.account.as_str(), rest),
    ];
    let lines: Vec<_> = lines.into_iter().filter(|(_, moved)| *moved != 0).collect();
    if !lines.is_empty() {
        let head = Head {
            id: &format!("{sandbox}/settle"),
            kind: Kind::Settlement,
            sandbox: Some(&sandbox),
            memo: &settle.told.extension,
            time: micros(settle.at),
        };
        known.sheet.post(&head, &lines)?;
    }
    held.amount = 0;
    // What was charged stays in the days' sums and is no part of a hold any more.
    held.parts = Parts::default();
    let end = End { at: micros(settle.at), told: serde_json::to_string(&settle.told)? };
    write(connection, known.sheet, &sandbox, &held, Some(end), &change)
}

/// What ended without a charge, in order of its end.
pub(super) const FREE: &str = "SELECT h.sandbox_id, h.settled_at FROM holds h INDEXED BY holds_ended \
    WHERE h.account = ?1 AND h.settled_at < ?3 AND (h.settled_at, h.sandbox_id) > (?2, ?4) AND NOT EXISTS \
    (SELECT 1 FROM ledger_transactions t WHERE t.id = h.sandbox_id || '/settle') \
    ORDER BY h.settled_at, h.sandbox_id LIMIT ?5";

pub(super) fn free(
    connection: &Connection,
    account: &str,
    after: (Timestamp, Option<SandboxId>),
    until: Timestamp,
    limit: Limit,
) -> Attempt<Vec<(SandboxId, Timestamp)>> {
    query(FREE)
        .bind(account)
        .bind(micros(after.0))
        .bind(micros(until))
        .bind(after.1.map(|id| id.to_string()).unwrap_or_default())
        .bind(i64::from(limit.get()))
        .all(connection, |row| Ok((row.get_ref(0)?.as_str()?.parse()?, moment(row.get(1)?)?)))
}

pub(super) fn told(connection: &Connection, sandbox: SandboxId) -> Attempt<Option<Told>> {
    let told = query("SELECT told FROM holds WHERE sandbox_id = ? AND told IS NOT NULL")
        .bind(sandbox.to_string())
        .first(connection, |row| Ok(serde_json::from_str(row.get_ref(0)?.as_str()?)?))?;
    Ok(told)
}

/// What is written of a hold when it ends.
struct End {
    at: i64,
    told: String,
}

fn write(
    connection: &Connection,
    sheet: Sheet,
    sandbox: &str,
    held: &Held,
    end: Option<End>,
    change: &[(i64, i64)],
) -> Attempt<()> {
    sheet.write(connection)?;
    query(WRITE)
        .bind(sandbox)
        .bind(&held.account)
        .bind(held.amount)
        .bind(held.turns)
        .bind(&held.subjects)
        .bind(serde_json::to_string(&held.parts)?)
        .bind(end.as_ref().map(|end| end.at))
        .bind(end.map(|end| end.told))
        .run(connection)
        .map_err(defect)?;
    query(SPEND).bind(&held.subjects).bind(json!(change).to_string()).run(connection).map_err(defect)?;
    Ok(())
}
