//! Reading an export. What a row lacks is said with its line, and the other rows still count.

use jiff::Timestamp;
use sandboxer_core::suggest::printable;
use sandboxer_core::{Dur, Error, ErrorKind, Money, Result};
use serde_json::{Map, Value};

use super::{MalformedRow, UsageFormat};

const MOST_ROWS: usize = 200_000;
const MOST_PROBLEMS: usize = 100;

/// Column names, ours first, then what providers call them.
const TAG: [&str; 6] = ["tag", "sandbox_id", "sandbox", "name", "label", "id"];
const START: [&str; 4] = ["started_at", "start", "start_time", "created_at"];
const END: [&str; 4] = ["ended_at", "end", "end_time", "stopped_at"];
const SECONDS: [&str; 3] = ["seconds", "duration_seconds", "duration"];
const COST: [&str; 4] = ["cost", "amount", "total", "cost_usd"];
const CURRENCY: [&str; 2] = ["currency", "currency_code"];

#[derive(Default)]
pub(super) struct Parsed {
    pub(super) rows: Vec<Row>,
    pub(super) malformed: Vec<MalformedRow>,
    pub(super) more_malformed: u64,
}

pub(super) struct Row {
    pub(super) tag: String,
    pub(super) cost: Money,
    pub(super) time: Option<Dur>,
    pub(super) started_at: Option<Timestamp>,
    pub(super) ended_at: Option<Timestamp>,
}

impl Parsed {
    fn push(&mut self, line: u64, row: Result<Row, String>) -> Result<()> {
        match row {
            Ok(_) if self.rows.len() >= MOST_ROWS => {
                Err(Error::new(ErrorKind::TooLarge, format!("the export has more than {MOST_ROWS} rows"))
                    .with_hint("split it, for example by day"))
            }
            Ok(row) => {
                self.rows.push(row);
                Ok(())
            }
            Err(problem) => {
                if self.malformed.len() < MOST_PROBLEMS {
                    self.malformed.push(MalformedRow { line, problem });
                } else {
                    self.more_malformed += 1;
                }
                Ok(())
            }
        }
    }
}

pub(super) fn read(format: UsageFormat, content: &[u8]) -> Result<Parsed> {
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    match format {
        UsageFormat::Csv => read_csv(content),
        UsageFormat::Json => read_json(content),
    }
}

fn read_csv(content: &[u8]) -> Result<Parsed> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(content);
    let invalid = |why: String| Error::new(ErrorKind::InvalidInput, format!("the export is not CSV: {why}"));
    let headings: Vec<String> = reader
        .headers()
        .map_err(|error| invalid(error.to_string()))?
        .iter()
        .map(|name| name.to_ascii_lowercase().replace([' ', '-'], "_"))
        .collect();
    let place =
        |names: &[&str]| names.iter().find_map(|name| headings.iter().position(|known| known == name));
    let [tag, cost] = [("tag", place(&TAG)), ("cost", place(&COST))].map(|(what, at)| {
        at.ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, format!("the export has no column `{what}`")).with_hint(
                "the first line names the columns: tag (or sandbox_id), started_at, ended_at or seconds, cost",
            )
        })
    });
    let (tag, cost) = (tag?, cost?);
    let (start, end, seconds) = (place(&START), place(&END), place(&SECONDS));
    let currency = place(&CURRENCY);
    let mut parsed = Parsed::default();
    let mut lines = Lines { content, at: 0, line: 1 };
    for record in reader.into_records() {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                let line = lines.line_of(error.position());
                parsed.push(line, Err(format!("it cannot be read: {}", told(&error))))?;
                continue;
            }
        };
        let line = lines.line_of(record.position());
        let cell = |at: Option<usize>| at.and_then(|at| record.get(at)).filter(|text| !text.is_empty());
        let row = if record.len() == headings.len() {
            check_currency(cell(currency))
                .and_then(|()| row(cell(Some(tag)), cell(Some(cost)), cell(start), cell(end), cell(seconds)))
        } else {
            Err(format!("it has {} cells where the headings have {}", record.len(), headings.len()))
        };
        parsed.push(line, row)?;
    }
    Ok(parsed)
}

/// Counts lines as editors do. The reader leaves what ends a line, if it is more than one byte, to the next record.
struct Lines<'a> {
    content: &'a [u8],
    at: usize,
    line: u64,
}

impl Lines<'_> {
    /// The line on which the record at this position begins; records come in their order.
    fn line_of(&mut self, position: Option<&csv::Position>) -> u64 {
        let start = position.map_or(0, |position| usize::try_from(position.byte()).unwrap_or(usize::MAX));
        while let Some(byte) = self.content.get(self.at) {
            let is_end = matches!(byte, b'\r' | b'\n');
            if self.at >= start && !is_end {
                break;
            }
            self.at += 1;
            let is_half = *byte == b'\r' && self.content.get(self.at) == Some(&b'\n');
            self.line += u64::from(is_end && !is_half);
        }
        self.line
    }
}

/// What is wrong, without the place, which is told beside it.
fn told(error: &csv::Error) -> &'static str {
    match error.kind() {
        csv::ErrorKind::Utf8 { .. } => "it is not UTF-8",
        _ => "its quotes do not match",
    }
}

fn read_json(content: &[u8]) -> Result<Parsed> {
    let invalid = |why: String| {
        Error::new(ErrorKind::InvalidInput, format!("the export is not JSON that can be used: {why}"))
            .with_hint("a list of objects with tag (or sandbox_id), started_at, ended_at or seconds, cost")
    };
    let value: Value = serde_json::from_slice(content).map_err(|error| invalid(error.to_string()))?;
    let items = match value {
        Value::Array(items) => items,
        Value::Object(mut object) => match object.remove("items") {
            Some(Value::Array(items)) => items,
            _ => return Err(invalid("an object without a list `items`".into())),
        },
        _ => return Err(invalid("it is neither a list nor an object".into())),
    };
    let mut parsed = Parsed::default();
    for (line, item) in (1..).zip(items) {
        let row = match &item {
            Value::Object(object) => json_row(object),
            _ => Err("it is not an object".into()),
        };
        parsed.push(line, row)?;
    }
    Ok(parsed)
}

fn json_row(object: &Map<String, Value>) -> Result<Row, String> {
    let field = |names: &[&str]| {
        let value = names.iter().find_map(|name| object.get(*name))?;
        match value {
            Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    };
    let [tag, cost, start, end, seconds] =
        [field(&TAG), field(&COST), field(&START), field(&END), field(&SECONDS)];
    check_currency(field(&CURRENCY).as_deref())?;
    row(tag.as_deref(), cost.as_deref(), start.as_deref(), end.as_deref(), seconds.as_deref())
}

/// Amounts of another currency would be compared as if they were dollars.
fn check_currency(currency: Option<&str>) -> Result<(), String> {
    match currency {
        Some(other) if !other.eq_ignore_ascii_case(Money::CURRENCY) => {
            let (shown, own) = (printable(other), Money::CURRENCY);
            Err(format!("its currency is `{shown}`, and our meters are kept in {own}"))
        }
        _ => Ok(()),
    }
}

fn row(
    tag: Option<&str>,
    cost: Option<&str>,
    start: Option<&str>,
    end: Option<&str>,
    seconds: Option<&str>,
) -> Result<Row, String> {
    let tag = tag.ok_or("it has no tag")?;
    if tag.len() > 256 || tag.chars().any(char::is_control) {
        return Err("its tag is too long or not printable".into());
    }
    let cost: Money = cost
        .ok_or("it has no cost")?
        .trim_start_matches('$')
        .parse()
        .map_err(|error: Error| error.to_string())?;
    if cost < Money::ZERO || cost > sandboxer_core::ledger::MOST {
        return Err(format!("its cost {cost} is out of range"));
    }
    let moment = |text: Option<&str>| match text {
        None => Ok(None),
        Some(text) => text
            .parse::<Timestamp>()
            .map(Some)
            .map_err(|_| format!("`{}` is not a time such as 2026-11-16T10:00:00Z", printable(text))),
    };
    let (started_at, ended_at) = (moment(start)?, moment(end)?);
    let time = match (seconds, started_at, ended_at) {
        (Some(text), ..) => Some(span(text)?),
        (None, Some(start), Some(end)) => Some(super::between(start, end).ok_or("it ends before it begins")?),
        _ => return Err("it has neither seconds nor both started_at and ended_at".into()),
    };
    Ok(Row { tag: tag.to_owned(), cost, time, started_at, ended_at })
}

/// Seconds with up to three decimals that count.
fn span(text: &str) -> Result<Dur, String> {
    let wrong = || format!("`{}` is not a number of seconds", printable(text));
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || whole.len() > 10 {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let thousandths: String = decimals.chars().chain("000".chars()).take(3).collect();
    let thousandths: u64 = thousandths.parse().map_err(|_| wrong())?;
    Ok(Dur::from_millis(whole * 1_000 + thousandths))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_same_number_however_lines_end() {
        for end in ["\n", "\r\n", "\r"] {
            let lines = ["tag,seconds,cost", "a,1,1", "bad,x,1", "", "\"b\",2,1", "worse,1,y", ""];
            let parsed = read(UsageFormat::Csv, lines.join(end).as_bytes()).unwrap();
            let told: Vec<u64> = parsed.malformed.iter().map(|row| row.line).collect();
            assert_eq!((parsed.rows.len(), told), (2, vec![3, 6]), "{end:?}");
        }
    }

    #[test]
    fn csv_rows_and_the_lines_of_bad_ones() {
        let text = "Sandbox ID,started_at,ended_at,Cost\r\n\
                    sbx_1,2026-11-01T00:00:00Z,2026-11-01T00:01:00Z,0.05\n\
                    sbx_2,yesterday,2026-11-01T00:01:00Z,0.05\n\
                    sbx_3,2026-11-01T00:00:00Z,2026-11-01T00:01:00Z,five\n\
                    ,2026-11-01T00:00:00Z,2026-11-01T00:01:00Z,1\n\
                    sbx_5,2026-11-01T00:02:00Z,2026-11-01T00:01:00Z,1\n\
                    sbx_6,2026-11-01T00:00:00Z\n\
                    \"a, b\",2026-11-01T00:00:00Z,2026-11-01T00:00:01.5Z,$1.25\n";
        let parsed = read(UsageFormat::Csv, text.as_bytes()).unwrap();
        assert_eq!(parsed.rows.len(), 2);
        assert_eq!((parsed.rows[0].tag.as_str(), parsed.rows[0].time), ("sbx_1", Some(Dur::from_secs(60))));
        assert_eq!(
            (parsed.rows[1].tag.as_str(), parsed.rows[1].cost.to_string()),
            ("a, b", "1.25 USD".into())
        );
        let lines: Vec<u64> = parsed.malformed.iter().map(|row| row.line).collect();
        assert_eq!(lines, [3, 4, 5, 6, 7]);
        assert!(parsed.malformed[0].problem.contains("is not a time"), "{:?}", parsed.malformed);
    }

    #[test]
    fn json_rows() {
        let text = r#"[{"tag":"sbx_1","seconds":1.5,"cost":"0.05"},{"tag":"sbx_2","seconds":9,"cost":0.25},7,{"tag":"x"}]"#;
        let parsed = read(UsageFormat::Json, text.as_bytes()).unwrap();
        assert_eq!(parsed.rows.len(), 2);
        assert_eq!(parsed.rows[0].time, Some(Dur::from_millis(1_500)));
        assert_eq!(parsed.rows[1].cost.to_string(), "0.25 USD");
        assert_eq!(parsed.malformed.iter().map(|row| row.line).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn another_currency_is_not_taken_for_dollars() {
        let text = "tag,seconds,cost,Currency\na,1,5,USD\nb,1,5,EUR\nc,1,5,usd\nd,1,5,\ne,1,5,US Dollars\n";
        let parsed = read(UsageFormat::Csv, text.as_bytes()).unwrap();
        assert_eq!(parsed.rows.iter().map(|row| row.tag.as_str()).collect::<Vec<_>>(), ["a", "c", "d"]);
        assert_eq!(parsed.malformed.iter().map(|row| row.line).collect::<Vec<_>>(), [3, 6]);
        assert!(parsed.malformed[0].problem.contains("`EUR`"), "{:?}", parsed.malformed);
        let text =
            r#"[{"tag":"a","seconds":1,"cost":"5","currency":"EUR"},{"tag":"b","seconds":1,"cost":"5"}]"#;
        let parsed = read(UsageFormat::Json, text.as_bytes()).unwrap();
        assert_eq!((parsed.rows.len(), parsed.malformed[0].line), (1, 1));
    }

    #[test]
    fn what_is_no_export_is_refused() {
        for text in ["", "a,b\n1,2\n", "tag\nx\n"] {
            let error = read(UsageFormat::Csv, text.as_bytes()).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
        }
        for text in ["", "7", "{}", "[1"] {
            assert!(read(UsageFormat::Json, text.as_bytes()).is_err(), "{text}");
        }
        let bad = read(UsageFormat::Csv, b"tag,seconds,cost\n\xff,1,1\n").unwrap();
        assert_eq!((bad.rows.len(), bad.malformed.len()), (0, 1));
    }
}
