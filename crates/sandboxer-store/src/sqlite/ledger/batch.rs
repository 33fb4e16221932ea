//! A batch of transfers in one transaction: one read, a decision about each in turn, then the writes.

use std::collections::HashMap;

use rusqlite::{Connection, Row};
use sandboxer_core::ledger::{Entry, Kind, WORLD};
use sandboxer_core::{Error, ErrorKind};
use serde_json::Value;

use super::amount::{self, money};
use super::post::{Head, Sheet, Standing, latest};
use super::transfer::Answer;
use crate::ledger::Transfer;
use crate::sqlite::fault::{Attempt, Fault};
use crate::sqlite::query::query;
use crate::sqlite::rows::{micros, moment};

pub(super) const READ: &str = concat!(
    "SELECT 'made', e.account, e.amount, e.balance, e.position, t.id, t.kind, t.memo, t.time \
    FROM json_each(?1) j CROSS JOIN ledger_transactions t ON t.id = j.value \
    CROSS JOIN ledger_entries e ON e.transaction_id = t.id \
    UNION ALL SELECT 'account', name, balance, overdraft, NULL, NULL, NULL, NULL, NULL \
    FROM accounts WHERE name IN (SELECT value FROM json_each(?2)) UNION ALL ",
    latest!(", NULL, NULL, NULL, NULL, NULL, NULL")
);

/// What makes two transfers the same; not the time, which a repeat has another of.
#[derive(PartialEq)]
struct Content {
    kind: Kind,
    from: String,
    to: String,
    nanos: i64,
    memo: String,
}

impl Content {
    fn of(transfer: &Transfer) -> Attempt<Self> {
        Ok(Self {
            kind: transfer.kind,
            from: transfer.from.clone(),
            to: transfer.to.clone(),
            nanos: amount::nanos("a transfer", transfer.amount)?,
            memo: transfer.memo.clone(),
        })
    }

    fn of_entries(entries: &[Entry]) -> Option<Self> {
        let from = entries.iter().find(|entry| entry.amount.nanos() < 0)?;
        let to = entries.iter().find(|entry| entry.amount.nanos() > 0)?;
        Some(Self {
            kind: to.kind,
            from: from.account.clone(),
            to: to.account.clone(),
            nanos: i64::try_from(to.amount.nanos()).ok()?,
            memo: to.memo.clone(),
        })
    }
}

pub(super) fn write(connection: &Connection, transfers: &[&Transfer]) -> Attempt<Vec<Answer>> {
    let (mut sheet, mut made) = read(connection, transfers)?;
    let mut contents: HashMap<String, Content> =
        made.iter().filter_map(|(id, entries)| Some((id.clone(), Content::of_entries(entries)?))).collect();
    let mut verdicts = Vec::with_capacity(transfers.len());
    for transfer in transfers {
        verdicts.push(decide(transfer, &mut sheet, &mut contents));
    }
    for entry in sheet.write(connection)? {
        made.entry(entry.transaction.clone()).or_default().push(entry);
    }
    let answer = |(transfer, verdict): (&&Transfer, Attempt<()>)| match verdict {
        Ok(()) => Ok(made.get(&transfer.id).cloned().unwrap_or_default()),
        Err(Fault::Own(error)) => Err(error),
        Err(Fault::Sql(error)) => {
            Err(Error::new(ErrorKind::Internal, "a transfer was not decided").with_source(error))
        }
    };
    Ok(transfers.iter().zip(verdicts).map(answer).collect())
}

/// The accounts of the transfers, and the entries of those that were made before.
fn read(connection: &Connection, transfers: &[&Transfer]) -> Attempt<(Sheet, HashMap<String, Vec<Entry>>)> {
    let ids: Vec<&str> = transfers.iter().map(|one| one.id.as_str()).collect();
    let names: Vec<&str> = transfers.iter().flat_map(|one| [one.from.as_str(), one.to.as_str()]).collect();
    let (mut sheet, mut made) = (Sheet::default(), HashMap::<String, Vec<Entry>>::new());
    query(READ).bind(Value::from(ids).to_string()).bind(Value::from(names).to_string()).each(
        connection,
        |row| {
            match row.get_ref(0)?.as_str()? {
                "account" => {
                    sheet.know(row.get(1)?, Standing { balance: row.get(2)?, overdraft: row.get(3)? });
                }
                "latest" => sheet.know_latest(row.get(2)?),
                _ => {
                    let entry = entry(row)?;
                    let entries = made.entry(entry.transaction.clone()).or_default();
                    // The same id may be in the batch twice.
                    if entries.iter().all(|known| known.position != entry.position) {
                        entries.push(entry);
                    }
                }
            }
            Ok(())
        },
    )?;
    for entries in made.values_mut() {
        entries.sort_by_key(|entry| entry.position);
    }
    Ok((sheet, made))
}

fn entry(row: &Row<'_>) -> Attempt<Entry> {
    Ok(Entry {
        position: row.get(4)?,
        transaction: row.get(5)?,
        kind: row.get_ref(6)?.as_str()?.parse()?,
        account: row.get(1)?,
        amount: money(row.get(2)?),
        balance: money(row.get(3)?),
        sandbox_id: None,
        memo: row.get(7)?,
        time: moment(row.get(8)?)?,
    })
}

/// Whether a transfer may be made, after those before it. If so, it is on the sheet.
fn decide(transfer: &Transfer, sheet: &mut Sheet, contents: &mut HashMap<String, Content>) -> Attempt<()> {
    let content = Content::of(transfer)?;
    if let Some(known) = contents.get(&transfer.id) {
        if *known == content {
            return Ok(());
        }
        let message = format!("the transfer `{}` was made before and was another one", transfer.id);
        return Err(Error::new(ErrorKind::Conflict, message).with_hint("use another id").into());
    }
    let standing = sheet.standing(&transfer.from);
    let available = standing.unwrap_or_default().available();
    if transfer.from != WORLD && available < content.nanos {
        let message = format!(
            "the account {} has {} to spend, and {} were to be taken from it",
            transfer.from,
            money(available),
            transfer.amount
        );
        return Err(Error::new(ErrorKind::InsufficientCredits, message)
            .with_hint(format!("`sandboxer credits show {}` shows what is there", transfer.from))
            .with_context("account", &transfer.from)
            .with_context("available", money(available).to_string())
            .with_context("needed", transfer.amount.to_string())
            .into());
    }
    let head = Head {
        id: &transfer.id,
        kind: transfer.kind,
        sandbox: None,
        memo: &transfer.memo,
        time: micros(transfer.time),
    };
    sheet.post(&head, &[(&transfer.from, -content.nanos), (&transfer.to, content.nanos)])?;
    contents.insert(transfer.id.clone(), content);
    Ok(())
}
