//! Statements, however long the month was.

use sandboxer_core::{Dur, Money};
use sandboxer_engine::{Statement, StatementFormat, StatementText};

use crate::fixture::{ACCOUNT, account, create, me, money, pay_in, workshop};

/// More than two pages of the ledger.
const PAYMENTS: usize = 2_100;

async fn pieces(mut text: StatementText) -> Vec<String> {
    let mut out = Vec::new();
    while let Some(piece) = text.next().await.unwrap() {
        out.push(piece);
    }
    out
}

#[tokio::test]
async fn a_long_month_is_written_a_page_at_a_time() {
    let workshop = workshop().await;
    for _ in 0..PAYMENTS {
        pay_in(&workshop, "0.01").await;
    }
    let sandbox = create(&workshop.engine, 100).await.unwrap();
    workshop.clock.advance(Dur::from_secs(30));
    workshop.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap();
    let month = workshop.engine.now().to_string()[..7].parse().unwrap();
    let engine = workshop.engine.clone();
    let statement = async |format| engine.statement(&me(), month, Some(ACCOUNT), format).await.unwrap();

    let table = pieces(statement(StatementFormat::Csv).await).await;
    assert_eq!(table.len(), 5, "the head, three pages, the totals");
    assert!(table.iter().all(|piece| piece.matches("\r\n").count() <= 1_000));
    let lines = table.concat().matches("\r\n").count();
    assert_eq!(
        lines,
        2 + PAYMENTS + 2 + 4,
        "with a hold and its end; two totals, a meter, the closing balance"
    );

    let text = statement(StatementFormat::Json).await;
    let closing = account(&workshop).await.balance;
    // What comes in while it is read is for the next one.
    pay_in(&workshop, "5").await;
    let whole: Statement = serde_json::from_str(&pieces(text).await.concat()).unwrap();
    assert_eq!((whole.opening, whole.closing, whole.entries.len()), (Money::ZERO, closing, PAYMENTS + 2));
    let sum = whole.entries.iter().try_fold(whole.opening, |sum, entry| sum.checked_add(entry.amount));
    assert_eq!(sum.unwrap(), whole.closing);
    assert_eq!((whole.credited, whole.charged, whole.held), (money("21"), money("0.3"), Money::ZERO));
    let used = &whole.by_extension[0];
    assert_eq!((used.extension.as_str(), used.sandboxes, used.upstream), ("ext.native", 1, money("0.3")));
    assert_eq!((whole.by_meter.len(), whole.by_meter[0].cost), (1, money("0.3")));
}

#[tokio::test]
async fn a_month_without_entries_is_a_statement_too() {
    let workshop = workshop().await;
    pay_in(&workshop, "1").await;
    let month = "2001-01".parse().unwrap();
    let text = workshop.engine.statement(&me(), month, None, StatementFormat::Json).await.unwrap();
    assert_eq!(text.file_name(), "statement-2001-01.json");
    let whole: Statement = serde_json::from_str(&pieces(text).await.concat()).unwrap();
    assert_eq!((whole.opening, whole.closing, whole.entries.len()), (Money::ZERO, Money::ZERO, 0));
}
