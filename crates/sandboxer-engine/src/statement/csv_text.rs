//! A statement as CSV, as RFC 4180 has it. No cell that somebody wrote is a formula to a spreadsheet.

use sandboxer_core::ledger::Entry;
use sandboxer_core::tariff::ProviderKey;
use sandboxer_core::{Error, ErrorKind, Money, Result};

use super::Statement;

const HEADINGS: [&str; 13] = [
    "row",
    "time",
    "kind",
    "account",
    "amount",
    "balance",
    "currency",
    "sandbox_id",
    "extension",
    "profile",
    "meter",
    "transaction",
    "memo",
];

type Row = [String; HEADINGS.len()];

/// The headings and the opening balance.
pub(super) fn head(statement: &Statement) -> Result<String> {
    let opening = bound("opening", statement.from.to_string(), statement, statement.opening);
    rows([HEADINGS.map(str::to_owned), opening])
}

pub(super) fn entries(entries: &[Entry]) -> Result<String> {
    rows(entries.iter().map(|entry| {
        [
            "entry".into(),
            entry.time.to_string(),
            entry.kind.as_str().into(),
            inert(&entry.account),
            plain(entry.amount),
            plain(entry.balance),
            Money::CURRENCY.into(),
            entry.sandbox_id.map(|id| id.to_string()).unwrap_or_default(),
            String::new(),
            String::new(),
            String::new(),
            inert(&entry.transaction),
            inert(&entry.memo),
        ]
    }))
}

/// The totals and the closing balance.
pub(super) fn tail(statement: &Statement) -> Result<String> {
    let mut last = Vec::new();
    for total in &statement.by_extension {
        let kinds = match total.provider_key {
            ProviderKey::Platform => ["upstream", "fee"],
            // Beside what is charged here, so that nobody adds it up with that.
            ProviderKey::Own => ["upstream_own_key", "fee_own_key"],
        };
        for (kind, amount) in kinds.into_iter().zip([total.upstream, total.fee]) {
            last.push(summed(kind, amount, [&total.extension, "", ""]));
        }
    }
    for total in &statement.by_meter {
        let kind = match total.provider_key {
            ProviderKey::Platform => "metered",
            ProviderKey::Own => "metered_own_key",
        };
        last.push(summed(kind, total.cost, [&total.extension, &total.profile, &total.meter]));
    }
    last.push(bound("closing", statement.until.to_string(), statement, statement.closing));
    rows(last)
}

fn rows(rows: impl IntoIterator<Item = Row>) -> Result<String> {
    let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
    for row in rows {
        writer.write_record(row).map_err(failed)?;
    }
    let bytes = writer.into_inner().map_err(|error| failed(error.into_error()))?;
    String::from_utf8(bytes).map_err(failed)
}

fn bound(name: &str, time: String, statement: &Statement, balance: Money) -> Row {
    let mut row = Row::default();
    row[0] = name.into();
    row[1] = time;
    row[3] = inert(&statement.account);
    row[5] = plain(balance);
    row[6] = Money::CURRENCY.into();
    row
}

fn summed(kind: &str, amount: Money, [extension, profile, meter]: [&str; 3]) -> Row {
    let mut row = Row::default();
    row[0] = "total".into();
    row[2] = kind.into();
    row[4] = plain(amount);
    row[6] = Money::CURRENCY.into();
    row[8] = inert(extension);
    row[9] = inert(profile);
    row[10] = inert(meter);
    row
}

/// The number alone, which a spreadsheet can add up.
fn plain(amount: Money) -> String {
    amount.to_string().trim_end_matches(Money::CURRENCY).trim_end().to_owned()
}

/// Text that begins like a formula gets an apostrophe, which spreadsheets do not show. They trim what cannot be seen
/// before they look, and some read full-width signs as the plain ones.
fn inert(text: &str) -> String {
    const SIGNS: [char; 8] = ['=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];
    let seen = text.trim_start_matches(is_unseen);
    if seen.starts_with(SIGNS) || text.starts_with(['\t', '\r', '\n']) {
        format!("'{text}")
    } else {
        text.to_owned()
    }
}

fn is_unseen(c: char) -> bool {
    // Spaces of any width, control characters, and those of no width at all.
    c.is_whitespace()
        || c.is_control()
        || matches!(c, '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn failed(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Internal, "the statement cannot be written as CSV").with_source(source)
}

#[cfg(test)]
mod tests {
    use sandboxer_core::ledger::Kind;

    use super::*;

    #[test]
    fn what_comes_before_a_formula_does_not_hide_it() {
        for before in
            ["", " ", "\t", "\r\n", "\u{a0}", "\u{3000}", "\u{200b}", "\u{feff} \u{2060}", "\u{202e}"]
        {
            for sign in ["=", "+", "-", "@", "\u{ff1d}", "\u{ff0b}", "\u{ff0d}", "\u{ff20}"] {
                let text = format!("{before}{sign}1+1");
                assert_eq!(inert(&text), format!("'{text}"), "{text:?}");
            }
            let text = format!("{}a=1", before.trim_matches(['\t', '\r', '\n']));
            assert_eq!(inert(&text), text);
        }
    }

    #[test]
    fn no_cell_is_a_formula_and_amounts_stay_numbers() {
        let time = "2026-11-02T00:00:00Z".parse().unwrap();
        let entry = |memo: &str, nanos| Entry {
            position: 1,
            transaction: "credit:1".into(),
            kind: Kind::Credit,
            account: "org:acme".into(),
            amount: Money::from_nanos(nanos),
            balance: Money::from_nanos(nanos),
            sandbox_id: None,
            memo: memo.into(),
            time,
        };
        let statement = Statement {
            account: "org:acme".into(),
            month: "2026-11".into(),
            from: "2026-11-01T00:00:00Z".parse().unwrap(),
            until: "2026-12-01T00:00:00Z".parse().unwrap(),
            opening: Money::ZERO,
            closing: Money::from_nanos(-1_500_000_000),
            credited: Money::ZERO,
            charged: Money::ZERO,
            held: Money::ZERO,
            by_extension: Vec::new(),
            by_meter: Vec::new(),
            entries: vec![entry("=HYPERLINK(\"http://x\")", -1_500_000_000), entry("a, \"b\"", 1)],
        };
        let lines = entries(&statement.entries).unwrap();
        let text = [head(&statement).unwrap(), lines, tail(&statement).unwrap()].concat();
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(
            lines[0],
            "row,time,kind,account,amount,balance,currency,sandbox_id,extension,profile,meter,transaction,memo"
        );
        assert_eq!(lines[1], "opening,2026-11-01T00:00:00Z,,org:acme,,0.00,USD,,,,,,");
        assert!(
            lines[2].ends_with(",-1.50,-1.50,USD,,,,,credit:1,\"'=HYPERLINK(\"\"http://x\"\")\""),
            "{}",
            lines[2]
        );
        assert!(lines[3].ends_with(",\"a, \"\"b\"\"\""), "{}", lines[3]);
        assert_eq!(lines[4], "closing,2026-12-01T00:00:00Z,,org:acme,,-1.50,USD,,,,,,");
    }
}
