//! A batch of transfers in one transaction: one read, a decision about each in turn, one write.

use std::collections::HashMap;

use sandboxer_core::ledger::{Entry, Kind, WORLD};
use sandboxer_core::{Error, ErrorKind};
use serde_json::Value;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection as _, Row as _};

use super::amount::{self, money};
use super::post::{Head, Sheet, Standing, defect, latest, post};
use super::transfer::Answer;
use crate::ledger::Transfer;
use crate::sqlite::fault::{Attempt, Fault};
use crate::sqlite::rows::{micros, moment};

pub(super) const READ: &str = concat!(
    "SELECT 'made', e.account, e.amount, e.balance, e.position, t.id, t.kind, t.memo, t.time \
    FROM json_each($1) j CROSS JOIN ledger_transactions t ON t.id = j.value \
    CROSS JOIN ledger_entries e ON e.transaction_id = t.id \
    UNION ALL SELECT 'account', name, balance, overdraft, NULL, NULL, NULL, NULL, NULL \
    FROM accounts WHERE name IN (SELECT value FROM json_each($2)) UNION ALL ",
    latest!(", NULL, NULL, NULL, NULL, NULL, NULL")
);
const WRITE: &str = post!(" RETURNING account, amount, balance, position, transaction_id, time");

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

pub(super) async fn write(
    connection: &mut SqliteConnection,
    transfers: &[&Transfer],
) -> Attempt<Vec<Answer>> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let (mut sheet, mut made) = read(&mut tx, transfers).await?;
    let mut contents: HashMap<String, Content> =
        made.iter().filter_map(|(id, entries)| Some((id.clone(), Content::of_entries(entries)?))).collect();
    let mut verdicts = Vec::with_capacity(transfers.len());
    for transfer in transfers {
        verdicts.push(decide(transfer, &mut sheet, &mut contents));
    }
    if !sheet.is_empty() {
        let (transactions, entries) = sheet.into_parameters();
        let rows =
            sqlx::query(WRITE).bind(transactions).bind(entries).fetch_all(&mut *tx).await.map_err(defect)?;
        tx.commit().await?;
        let by_id: HashMap<&str, &Transfer> =
            transfers.iter().rev().map(|one| (one.id.as_str(), *one)).collect();
        for row in &rows {
            let id: String = row.try_get(4)?;
            let transfer = by_id.get(id.as_str()).ok_or_else(|| Fault::internal("an entry of nobody"))?;
            let entry = Entry {
                position: row.try_get(3)?,
                transaction: id.clone(),
                kind: transfer.kind,
                account: row.try_get(0)?,
                amount: money(row.try_get(1)?),
                balance: money(row.try_get(2)?),
                sandbox_id: None,
                memo: transfer.memo.clone(),
                time: moment(row.try_get(5)?)?,
            };
            made.entry(id).or_default().push(entry);
        }
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
async fn read(
    connection: &mut SqliteConnection,
    transfers: &[&Transfer],
) -> Attempt<(Sheet, HashMap<String, Vec<Entry>>)> {
    let ids: Vec<&str> = transfers.iter().map(|one| one.id.as_str()).collect();
    let names: Vec<&str> = transfers.iter().flat_map(|one| [one.from.as_str(), one.to.as_str()]).collect();
    let rows = sqlx::query(READ)
        .bind(Value::from(ids).to_string())
        .bind(Value::from(names).to_string())
        .fetch_all(connection)
        .await?;
    let (mut sheet, mut made) = (Sheet::default(), HashMap::<String, Vec<Entry>>::new());
    for row in &rows {
        match row.try_get::<&str, _>(0)? {
            "account" => {
                let standing = Standing { balance: row.try_get(2)?, overdraft: row.try_get(3)? };
                sheet.know(row.try_get(1)?, standing);
                continue;
            }
            "latest" => {
                sheet.know_latest(row.try_get(2)?);
                continue;
            }
            _ => {}
        }
        let entry = Entry {
            position: row.try_get(4)?,
            transaction: row.try_get(5)?,
            kind: row.try_get::<&str, _>(6)?.parse()?,
            account: row.try_get(1)?,
            amount: money(row.try_get(2)?),
            balance: money(row.try_get(3)?),
            sandbox_id: None,
            memo: row.try_get(7)?,
            time: moment(row.try_get(8)?)?,
        };
        let entries = made.entry(entry.transaction.clone()).or_default();
        // The same id may be in the batch twice.
        if entries.iter().all(|known| known.position != entry.position) {
            entries.push(entry);
        }
    }
    for entries in made.values_mut() {
        entries.sort_by_key(|entry| entry.position);
    }
    Ok((sheet, made))
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
