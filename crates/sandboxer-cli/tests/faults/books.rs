//! What everything cost: one set of intervals for each life, neither twice nor with a hole, and settled once.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use sandboxer_core::Money;
use serde_json::Value;

use crate::rig::{Home, PAID_IN};

/// Nothing is held any more, the books add up, and what is gone from the balance is what the intervals of the sandboxes
/// cost, at the price of the place that each of them had in the end.
pub(crate) fn assert_charged_once(home: &Home, rows: &[Value], point: &str) {
    assert_eq!(home.json(&["credits", "audit"])["wrong"], Value::Array(Vec::new()), "{point}");
    let account = &home.json(&["credits", "show"])["accounts"][0];
    assert_eq!(account["held"], "0.00 USD", "{point}");
    let mut intervals = intervals(home);
    let mut charged = BTreeMap::<String, i128>::new();
    for row in rows {
        let intervals = intervals.remove(row["sandbox_id"].as_str().unwrap()).unwrap_or_default();
        let provider = format!("provider:{}", row["extension"].as_str().unwrap());
        *charged.entry(provider).or_default() += charge_of(row, &intervals, point);
    }
    assert!(intervals.is_empty(), "{point}: charged for what never was: {intervals:#?}");
    let sum: i128 = charged.values().sum();
    assert_eq!(amount(&account["balance"]), PAID_IN.parse::<Money>().unwrap().nanos() - sum, "{point}");
    charged.retain(|_, sum| *sum != 0);
    assert_eq!(
        paid(home, point),
        charged,
        "{point}: each provider gets what its sandboxes cost, nobody else anything"
    );
}

/// What each provider was given in all. Each sandbox is settled once.
fn paid(home: &Home, point: &str) -> BTreeMap<String, i128> {
    let entries = home.json(&["credits", "history", "--account", "all"]);
    let (mut out, mut settled) = (BTreeMap::<String, i128>::new(), BTreeMap::new());
    for entry in entries["items"].as_array().unwrap() {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        if entry["kind"] == "settlement" {
            let first = settled.entry(text("sandbox_id")).or_insert_with(|| text("transaction"));
            assert_eq!(*first, text("transaction"), "{point}: settled more than once: {entries:#}");
        }
        if text("account").starts_with("provider:") {
            *out.entry(text("account")).or_default() += amount(&entry["amount"]);
        }
    }
    out.retain(|_, sum| *sum != 0);
    out
}

/// What one sandbox was charged, after its intervals were found to follow each other from `ready` to its end.
fn charge_of(row: &Value, intervals: &[Interval], point: &str) -> i128 {
    let told = || format!("{point}: {row:#}\n{intervals:#?}");
    assert_eq!(row["state"], "destroyed", "{}", told());
    let cost = &row["cost"];
    let (charged, quoted) = (amount(&cost["charged"]), amount(&cost["quoted"]));
    assert!(charged <= quoted && cost["absorbed"].is_null(), "above the hold: {}", told());
    assert_eq!(row["ready_at"].is_null(), intervals.is_empty(), "{}", told());
    let numbers = intervals.iter().map(|interval| interval.number);
    assert!(numbers.eq(1..=intervals.len() as u64), "twice or missing: {}", told());
    let mut from = row["ready_at"].as_str().map(moment);
    for interval in intervals {
        assert_eq!(Some(interval.start), from, "a hole or an overlap: {}", told());
        assert_eq!(interval.extension, row["extension"].as_str().unwrap(), "{}", told());
        from = interval.end;
        assert!(from.is_some_and(|end| end >= interval.start), "{}", told());
    }
    if let Some(end) = from {
        let gone = moment(row["destroyed_at"].as_str().unwrap());
        let expires = moment(row["expires_at"].as_str().unwrap());
        assert!(end <= gone && end <= expires, "charged beyond its end: {}", told());
    }
    assert_eq!(charged, intervals.iter().map(|interval| interval.cost).sum::<i128>(), "{}", told());
    charged
}

/// Between two changes of what a sandbox costs; all its meters together.
#[derive(Debug)]
pub(crate) struct Interval {
    number: u64,
    start: Timestamp,
    end: Option<Timestamp>,
    pub(crate) phase: String,
    extension: String,
    cost: i128,
}

/// The intervals of every sandbox in their order. Each meter is in each of them at most once.
pub(crate) fn intervals(home: &Home) -> BTreeMap<String, Vec<Interval>> {
    let meters = home.json(&["meters", "list"]);
    let mut out = BTreeMap::<(String, u64), Interval>::new();
    let mut seen = BTreeSet::new();
    for meter in meters["items"].as_array().unwrap() {
        let text = |name: &str| meter[name].as_str().unwrap().to_owned();
        let number = meter["sequence"].as_u64().unwrap();
        assert!(seen.insert((text("sandbox_id"), number, text("meter"))), "a meter twice: {meters:#}");
        let (start, end) = (moment(&text("started_at")), meter["ended_at"].as_str().map(moment));
        let interval = out.entry((text("sandbox_id"), number)).or_insert_with(|| Interval {
            number,
            start,
            end,
            phase: text("state"),
            extension: text("extension"),
            cost: 0,
        });
        assert_eq!((interval.start, interval.end), (start, end), "{meters:#}");
        assert_eq!((&interval.phase, &interval.extension), (&text("state"), &text("extension")));
        interval.cost += amount(&meter["cost"]);
    }
    let mut sorted = BTreeMap::<String, Vec<Interval>>::new();
    for ((id, _), interval) in out {
        sorted.entry(id).or_default().push(interval);
    }
    sorted
}

fn amount(value: &Value) -> i128 {
    value.as_str().unwrap_or_else(|| panic!("no amount: {value}")).parse::<Money>().unwrap().nanos()
}

fn moment(text: &str) -> Timestamp {
    text.parse().unwrap()
}
