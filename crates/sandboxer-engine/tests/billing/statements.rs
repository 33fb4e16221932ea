//! Statements, however long the month was.

use sandboxer_core::tariff::ProviderKey;
use sandboxer_core::{Dur, Money};
use sandboxer_engine::{Statement, StatementFormat, StatementText, UsageFormat, UsageImport};
use sandboxer_testkit::Workshop;

use crate::fixture::{ACCOUNT, PRICE, account, audit, create, me, money, pay_in, workshop};
use crate::own_keys::with_own_key;

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

/// Two seconds of a price with a minimum.
async fn short_life() -> (Workshop, sandboxer_core::sandbox::Sandbox) {
    let price = format!("{PRICE}minimum: 0.05\n");
    let workshop = Workshop::priced(&price).await.unwrap();
    pay_in(&workshop, "2").await;
    let sandbox = create(&workshop.engine, 100).await.unwrap();
    workshop.clock.advance(Dur::from_secs(2));
    let ended = workshop.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap();
    audit(&workshop).await;
    (workshop, ended)
}

async fn document(workshop: &Workshop) -> Statement {
    let month = workshop.engine.now().to_string()[..7].parse().unwrap();
    let text = workshop.engine.statement(&me(), month, Some(ACCOUNT), StatementFormat::Json).await.unwrap();
    serde_json::from_str(&pieces(text).await.concat()).unwrap()
}

fn export(rows: &str) -> UsageImport {
    UsageImport {
        extension: "ext.native".into(),
        format: UsageFormat::Csv,
        content: format!("tag,seconds,cost\n{rows}").into_bytes(),
        from: None,
        until: None,
        tolerance: Money::ZERO,
    }
}

#[tokio::test]
async fn the_lines_add_up_to_the_minimum_wherever_they_are_told() {
    let (workshop, ended) = short_life().await;
    let cost = ended.cost.unwrap();
    let sum = cost.items.iter().try_fold(Money::ZERO, |sum, item| sum.checked_add(item.cost)).unwrap();
    assert_eq!((cost.charged, sum), (money("0.05"), money("0.05")), "{:#?}", cost.items);
    let statement = document(&workshop).await;
    let metered: Vec<(&str, Money)> =
        statement.by_meter.iter().map(|one| (one.meter.as_str(), one.cost)).collect();
    assert_eq!(metered, [("minimum", money("0.03")), ("vcpu", money("0.02"))]);
    assert_eq!(statement.by_extension[0].upstream, money("0.05"));
    let rows = format!("{},2,0.05\n", ended.sandbox_id);
    let report = workshop.engine.reconcile_usage(&me(), &export(&rows)).await.unwrap();
    assert_eq!((report.ok, report.matched, report.ours), (true, 1, money("0.05")), "{report:#?}");
}

#[tokio::test]
async fn what_a_provider_bills_to_the_workspace_is_told_apart() {
    let workshop = with_own_key(1_000).await;
    pay_in(&workshop, "10").await;
    let id = create(&workshop.engine, 100).await.unwrap().sandbox_id;
    workshop.clock.advance(Dur::from_secs(10));
    workshop.engine.destroy(&me(), id).await.unwrap();
    let statement = document(&workshop).await;
    let [total] = &statement.by_extension[..] else { panic!("{statement:#?}") };
    assert_eq!((total.extension.as_str(), total.provider_key), ("ext.native", ProviderKey::Own));
    assert_eq!((total.upstream, total.fee, statement.charged), (money("0.1"), money("0.01"), money("0.01")));
    assert_eq!(statement.by_meter[0].provider_key, ProviderKey::Own);
    let month = statement.month.parse().unwrap();
    let text = workshop.engine.statement(&me(), month, Some(ACCOUNT), StatementFormat::Csv).await.unwrap();
    let table = pieces(text).await.concat();
    assert!(table.contains("total,,upstream_own_key,,0.10,,USD,,ext.native,"), "{table}");
    assert!(table.contains("total,,fee_own_key,,0.01,,USD,,ext.native,"), "{table}");
    // The export of the platform's account cannot have it.
    let report = workshop.engine.reconcile_usage(&me(), &export("")).await.unwrap();
    assert_eq!((report.ok, report.own_key, report.ours), (true, 1, Money::ZERO), "{report:#?}");
    let report = workshop.engine.reconcile_usage(&me(), &export(&format!("{id},10,0.1\n"))).await.unwrap();
    assert_eq!((report.ok, report.only_theirs.len()), (false, 1), "{report:#?}");
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

#[tokio::test]
async fn what_was_charged_nothing_is_told_too() {
    let workshop = with_own_key(0).await;
    pay_in(&workshop, "10").await;
    for _ in 0..2 {
        let id = create(&workshop.engine, 100).await.unwrap().sandbox_id;
        workshop.clock.advance(Dur::from_secs(10));
        workshop.engine.destroy(&me(), id).await.unwrap();
    }
    audit(&workshop).await;
    let statement = document(&workshop).await;
    let [total] = &statement.by_extension[..] else { panic!("{statement:#?}") };
    assert_eq!((total.sandboxes, total.provider_key), (2, ProviderKey::Own));
    assert_eq!((total.upstream, total.fee, statement.charged), (money("0.2"), Money::ZERO, Money::ZERO));
    assert_eq!(
        (statement.by_meter[0].cost, statement.by_meter[0].provider_key),
        (money("0.2"), ProviderKey::Own)
    );
    assert_eq!((statement.closing, statement.held), (money("10"), Money::ZERO));
    let before = "2001-01".parse().unwrap();
    let text = workshop.engine.statement(&me(), before, None, StatementFormat::Json).await.unwrap();
    let other: Statement = serde_json::from_str(&pieces(text).await.concat()).unwrap();
    assert_eq!(other.by_extension, [], "in its own month only");
}

/// The books are kept for longer than the rows of sandboxes.
#[tokio::test]
async fn a_statement_does_not_change_when_sandboxes_are_forgotten() {
    for fee in [0, 1_000] {
        let workshop = with_own_key(fee).await;
        // Whoever pays is known at the end at the latest.
        let early = if fee == 0 { Some(create(&workshop.engine, 100).await.unwrap()) } else { None };
        pay_in(&workshop, "10").await;
        let late = create(&workshop.engine, 100).await.unwrap();
        workshop.clock.advance(Dur::from_secs(10));
        for sandbox in early.iter().chain([&late]) {
            workshop.engine.destroy(&me(), sandbox.sandbox_id).await.unwrap();
        }
        let month: sandboxer_engine::Month = workshop.engine.now().to_string()[..7].parse().unwrap();
        let before = document(&workshop).await;
        assert_eq!(before.by_extension[0].sandboxes, if fee == 0 { 2 } else { 1 }, "{before:#?}");
        assert_eq!(
            workshop.store.prune(Dur::from_secs(1).after(workshop.engine.now())).await.unwrap(),
            before.by_extension[0].sandboxes
        );
        assert!(workshop.store.get(late.sandbox_id).await.unwrap().is_none());
        let text =
            workshop.engine.statement(&me(), month, Some(ACCOUNT), StatementFormat::Json).await.unwrap();
        let after: Statement = serde_json::from_str(&pieces(text).await.concat()).unwrap();
        assert_eq!((after.by_extension, after.by_meter), (before.by_extension, before.by_meter));
    }
}
