//! Budgets: set, listed, and asked before more is held.

use jiff::Timestamp;
use rusqlite::Connection;
use sandboxer_core::ledger::{Budget, Period, parse_subject};
use sandboxer_core::{Actor, Error, ErrorKind, Money};

use super::amount::{self, money};
use super::days::{self, Days};
use crate::sqlite::fault::Attempt;
use crate::sqlite::query::query;

pub(super) const LIST: &str = "SELECT b.subject, b.period, b.most, (SELECT coalesce(sum(s.used), 0) FROM spend s \
    WHERE s.subject = b.subject AND s.day BETWEEN iif(b.period = 'day', ?1, ?2) AND iif(b.period = 'day', ?1, ?3)) \
    FROM budgets b ORDER BY b.subject, b.period";

/// A budget with what was used of it in the current period.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) subject: String,
    pub(super) period: Period,
    pub(super) most: i64,
    pub(super) used: i64,
}

/// Whether every budget has room for so much more.
pub(super) fn check(budgets: &[Standing], actor: Actor, more: i64) -> Attempt<()> {
    let full = |budget: &&Standing| budget.used.checked_add(more).is_none_or(|sum| sum > budget.most);
    let Some(budget) = budgets.iter().find(full) else { return Ok(()) };
    let Standing { subject, period, most, used } = budget;
    let (most, used, more) = (money(*most), money(*used), money(more));
    Err(Error::new(
        ErrorKind::InsufficientCredits,
        format!("the budget of {subject} for the {period} is {most}: {used} are used, and {more} more must be held"),
    )
    .with_hint(match actor {
        Actor::Adm => format!(
            "`sandboxer credits budget set {subject} --per {period} --limit AMOUNT` raises it; or wait {}",
            days::next(*period)
        ),
        // Nobody else may.
        Actor::Agt | Actor::Atm => format!("ask an operator to raise it, or wait {}", days::next(*period)),
    })
    .with_context("budget", subject)
    .with_context("period", period.as_str())
    .with_context("limit", most.to_string())
    .with_context("used", used.to_string())
    .with_context("needed", more.to_string())
    .into())
}

pub(super) fn set(
    connection: &Connection,
    subject: &str,
    period: Period,
    limit: Option<Money>,
) -> Attempt<()> {
    let subject = parse_subject(subject)?;
    let Some(limit) = limit else {
        let sql = "DELETE FROM budgets WHERE subject = ? AND period = ?";
        query(sql).bind(subject).bind(period.as_str()).run(connection)?;
        return Ok(());
    };
    let sql = "INSERT INTO budgets (subject, period, most) VALUES (?, ?, ?) \
               ON CONFLICT (subject, period) DO UPDATE SET most = excluded.most";
    query(sql).bind(subject).bind(period.as_str()).bind(amount::nanos("a budget", limit)?).run(connection)?;
    Ok(())
}

pub(super) fn list(connection: &Connection, now: Timestamp) -> Attempt<Vec<Budget>> {
    let days = Days::of(now);
    query(LIST).bind(days.day).bind(days.first).bind(days.last).all(connection, |row| {
        Ok(Budget {
            subject: row.get(0)?,
            period: row.get_ref(1)?.as_str()?.parse()?,
            limit: money(row.get(2)?),
            used: money(row.get(3)?),
        })
    })
}
