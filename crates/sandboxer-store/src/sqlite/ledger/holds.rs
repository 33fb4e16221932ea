//! What is held for a sandbox: taken, changed and settled, each in one read and one write.

use sandboxer_core::ledger::{FEES, Kind, Payer, held_account, provider_account};
use sandboxer_core::{Actor, Error, ErrorKind, SandboxId};
use serde_json::{Value, json};
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::amount::{self, money};
use super::budgets::{self, Standing as BudgetStanding};
use super::days::{Days, Parts};
use super::post::{Head, Sheet, Standing, defect, latest, post};
use crate::ledger::{Hold, Settle};
use crate::sqlite::fault::{Attempt, Fault};
use crate::sqlite::rows::micros;

/// Everything that a change of a hold looks at: the hold, the accounts, the budgets. What is held for an account is an
/// account of its own, and is read with it.
pub(super) const READ: &str = concat!(
    "SELECT 'hold', account, amount, turns, settled_at, subjects, parts FROM holds WHERE sandbox_id = $1 \
    UNION ALL SELECT 'account', name, balance, overdraft, NULL, NULL, NULL FROM accounts WHERE name IN (\
        SELECT value FROM json_each($2) UNION ALL SELECT 'held:' || value FROM json_each($2) \
        UNION ALL SELECT account FROM holds WHERE sandbox_id = $1 \
        UNION ALL SELECT 'held:' || account FROM holds WHERE sandbox_id = $1) \
    UNION ALL SELECT 'budget', b.subject, b.most, (SELECT coalesce(sum(s.used), 0) FROM spend s \
        WHERE s.subject = b.subject AND s.day BETWEEN iif(b.period = 'day', $4, $5) AND iif(b.period = 'day', $4, $6)), \
        NULL, b.period, NULL FROM json_each(coalesce((SELECT subjects FROM holds WHERE sandbox_id = $1), $3)) j \
        JOIN budgets b ON b.subject = j.value UNION ALL ",
    latest!(", NULL, NULL, NULL, NULL")
);

const WRITE: &str = post!(
    "; INSERT INTO holds (sandbox_id, account, amount, turns, subjects, parts, settled_at) \
     VALUES ($3, $4, $5, $6, $7, $8, $9) ON CONFLICT (sandbox_id) DO UPDATE SET amount = excluded.amount, \
     turns = excluded.turns, parts = excluded.parts, settled_at = excluded.settled_at; \
     INSERT INTO spend (subject, day, used) SELECT s.value, c.value ->> 0, c.value ->> 1 \
     FROM json_each($7) s, json_each($10) c WHERE true \
     ON CONFLICT (subject, day) DO UPDATE SET used = used + excluded.used"
);

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
    fn of(row: &SqliteRow) -> Attempt<Self> {
        Ok(Self {
            account: row.try_get(1)?,
            amount: row.try_get(2)?,
            turns: row.try_get(3)?,
            is_settled: row.try_get::<Option<i64>, _>(4)?.is_some(),
            subjects: row.try_get(5)?,
            parts: serde_json::from_str(row.try_get(6)?)?,
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
    async fn read(
        connection: &mut SqliteConnection,
        sandbox: &str,
        accounts: &[String],
        subjects: &str,
        days: Days,
    ) -> Attempt<Self> {
        let rows = sqlx::query(READ)
            .bind(sandbox)
            .bind(Value::from(accounts).to_string())
            .bind(subjects)
            .bind(days.day)
            .bind(days.first)
            .bind(days.last)
            .fetch_all(connection)
            .await?;
        let mut known = Self::default();
        for row in &rows {
            match row.try_get::<&str, _>(0)? {
                "hold" => known.held = Some(Held::of(row)?),
                "account" => {
                    let standing = Standing { balance: row.try_get(2)?, overdraft: row.try_get(3)? };
                    known.sheet.know(row.try_get(1)?, standing);
                }
                "latest" => known.sheet.know_latest(row.try_get(2)?),
                _ => known.budgets.push(BudgetStanding {
                    subject: row.try_get(1)?,
                    most: row.try_get(2)?,
                    used: row.try_get(3)?,
                    period: row.try_get::<&str, _>(5)?.parse()?,
                }),
            }
        }
        Ok(known)
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
pub(super) async fn hold(connection: &mut SqliteConnection, sandbox: SandboxId, hold: &Hold) -> Attempt<()> {
    let wanted = amount::nanos("a hold", hold.amount)?;
    let sandbox = sandbox.to_string();
    let days = Days::of(hold.at);
    let subjects = Value::from(hold.payer.subjects()).to_string();
    let mut known = Known::read(connection, &sandbox, &hold.payer.accounts(), &subjects, days).await?;
    let mut held = known.held.take().unwrap_or_else(|| Held {
        account: known.payer(&hold.payer),
        amount: 0,
        turns: 0,
        is_settled: false,
        subjects,
        parts: Parts::default(),
    });
    let more = wanted - held.amount;
    if more == 0 {
        return Ok(());
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
    write(connection, known.sheet, &sandbox, &held, None, &change).await
}

/// Ends a hold: what was used is posted, the rest goes back.
pub(super) async fn settle(
    connection: &mut SqliteConnection,
    sandbox: SandboxId,
    settle: &Settle,
) -> Attempt<()> {
    let upstream = amount::nanos("a charge", settle.settlement.upstream)?;
    let fee = amount::nanos("a fee", settle.settlement.fee)?;
    let sandbox = sandbox.to_string();
    let provider = provider_account(&settle.extension);
    let others = [provider.clone(), FEES.to_owned()];
    let mut known = Known::read(connection, &sandbox, &others, "[]", Days::of(settle.at)).await?;
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
            memo: &settle.extension,
            time: micros(settle.at),
        };
        known.sheet.post(&head, &lines)?;
    }
    held.amount = 0;
    // What was charged stays in the days' sums and is no part of a hold any more.
    held.parts = Parts::default();
    write(connection, known.sheet, &sandbox, &held, Some(micros(settle.at)), &change).await
}

async fn write(
    connection: &mut SqliteConnection,
    sheet: Sheet,
    sandbox: &str,
    held: &Held,
    settled_at: Option<i64>,
    change: &[(i64, i64)],
) -> Attempt<()> {
    let (transactions, entries) = sheet.into_parameters();
    sqlx::query(WRITE)
        .bind(transactions)
        .bind(entries)
        .bind(sandbox)
        .bind(&held.account)
        .bind(held.amount)
        .bind(held.turns)
        .bind(&held.subjects)
        .bind(serde_json::to_string(&held.parts)?)
        .bind(settled_at)
        .bind(json!(change).to_string())
        .execute(connection)
        .await
        .map_err(defect)?;
    Ok(())
}
