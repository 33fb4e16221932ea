//! `credits reconcile`: a provider's export beside our meters.

use std::io::Read as _;
use std::path::Path;

use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_engine::{MOST_USAGE_BYTES, UsageFormat, UsageLine, UsageReport};

use crate::api::{Api, UsageQuery};
use crate::args::ReconcileArgs;
use crate::human;
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome, io_error};
use crate::table::{Fields, Rows};

pub(super) async fn run(args: ReconcileArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let (format, content) = read(&args.file)?;
    let query = UsageQuery {
        extension: args.extension,
        format,
        content,
        from: args.span.from,
        until: args.span.until,
        tolerance: args.tolerance,
    };
    let report = api.reconcile(query).await?;
    let status = if report.ok { ExitStatus::SUCCESS } else { ExitStatus::FAILURE };
    if printer.is_json() {
        printer.document(&report)?;
    } else {
        print(&report, printer)?;
    }
    Ok(status)
}

fn read(path: &Path) -> Result<(UsageFormat, Vec<u8>)> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let format = match ending.to_ascii_lowercase().as_str() {
        "csv" => UsageFormat::Csv,
        "json" => UsageFormat::Json,
        _ => {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("{} is neither .csv nor .json", path.display()),
            )
            .with_hint("the name says what the file is; rename it"));
        }
    };
    let failed = |source| io_error(format!("{} cannot be read", path.display()), source);
    // A pipe or a device might never end.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{} is not a regular file", path.display()))
            .with_hint("write the export into a file first"));
    }
    let mut content = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    // One byte more than fits, so that too much is noticed and not cut.
    file.take(MOST_USAGE_BYTES as u64 + 1).read_to_end(&mut content).map_err(failed)?;
    Ok((format, content))
}

fn print(report: &UsageReport, printer: &Printer) -> Outcome<()> {
    let mut fields = Fields::default();
    fields
        .add("extension", &*report.extension)
        .add("rows", report.rows.to_string())
        .add("matched", report.matched.to_string())
        .add("differing", report.differing.len().to_string())
        .add("only theirs", report.only_theirs.len().to_string())
        .add("only ours", report.only_ours.len().to_string())
        .add("ours", report.ours.to_string())
        .add("theirs", report.theirs.to_string())
        .add("difference", report.difference.to_string());
    fields.print(printer)?;
    let mut rows = Rows::new(["TAG", "WHAT", "OURS", "THEIRS", "DIFFERENCE", "OUR TIME", "THEIR TIME"]);
    let lists = [
        ("differs", &report.differing),
        ("only theirs", &report.only_theirs),
        ("only ours", &report.only_ours),
    ];
    for (what, list) in lists {
        for line in list {
            rows.row(row(line, what));
        }
    }
    if !rows.is_empty() {
        printer.line("")?;
        rows.print(printer)?;
    }
    let mut rows = Rows::new(["LINE", "CANNOT BE READ"]);
    for row in &report.malformed {
        rows.row([row.line.to_string(), row.problem.clone()]);
    }
    if !rows.is_empty() {
        printer.line("")?;
        rows.print(printer)?;
    }
    if report.own_key > 0 {
        printer.note(&format!(
            "left out, because they are on the bills of workspaces with their own key: {}",
            report.own_key
        ));
    }
    if report.more_malformed > 0 {
        printer.note(&format!("{} further rows cannot be read", report.more_malformed));
    }
    Ok(())
}

fn row(line: &UsageLine, what: &str) -> [String; 7] {
    [
        line.tag.clone(),
        what.to_owned(),
        line.ours.to_string(),
        line.theirs.to_string(),
        line.difference.to_string(),
        human::dur(line.our_time),
        line.their_time.map(human::dur).unwrap_or_default(),
    ]
}
