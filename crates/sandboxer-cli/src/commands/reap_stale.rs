//! `reap-stale` and `inspect stale`: what is left on the hosts, and its removal.

use sandboxer_engine::{EmptyRow, ReapRequest, Remains, StaleReport};

use crate::api::Api;
use crate::args::ReapStaleArgs;
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};
use crate::table::Rows;

pub(super) async fn run(args: ReapStaleArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let request = ReapRequest { apply: args.apply, host: args.host, unknown: args.unknown };
    let report = api.reap_stale(&request).await?;
    print(&report, &request, printer)?;
    if !request.apply && !printer.is_json() && has_work(&report, &request) {
        printer.note("nothing was changed; `sandboxer reap-stale --apply` removes what would be removed");
    }
    Ok(if report.has_problems() { ExitStatus::FAILURE } else { ExitStatus::SUCCESS })
}

fn has_work(report: &StaleReport, request: &ReapRequest) -> bool {
    !report.rows.is_empty() || report.remains.iter().any(|remains| remains.known || request.unknown)
}

/// Exactly what is there and what becomes of it.
pub(super) fn print(report: &StaleReport, request: &ReapRequest, printer: &Printer) -> Outcome<()> {
    if printer.is_json() {
        return printer.document(report);
    }
    if report.remains.is_empty() && report.rows.is_empty() {
        printer.note(if report.unanswered.is_empty() {
            "nothing is stale"
        } else {
            "nothing stale was found where somebody could look"
        });
    }
    if !report.remains.is_empty() {
        let mut rows = Rows::new(["HOST", "EXTENSION", "TAG", "WHY", "PARTS", "OUTCOME"]);
        for remains in &report.remains {
            rows.row([
                remains.host.clone(),
                remains.extension.clone(),
                remains.tag.clone(),
                format!("{}{}", remains.why, if remains.alive { ", and it lives" } else { "" }),
                remains.parts.join(", "),
                outcome_of(remains, report, request),
            ]);
        }
        rows.print(printer)?;
    }
    if !report.rows.is_empty() {
        if !report.remains.is_empty() {
            printer.line("")?;
        }
        let mut rows = Rows::new(["SANDBOX", "HOST", "EXTENSION", "STATE", "WHY", "OUTCOME"]);
        for row in &report.rows {
            rows.row([
                row.sandbox_id.to_string(),
                row.host.clone(),
                row.extension.clone(),
                row.state.to_string(),
                row.why.clone(),
                outcome_of_row(row, report),
            ]);
        }
        rows.print(printer)?;
    }
    for silent in &report.unanswered {
        let text = format!("{} could not look at host {}: {}", silent.extension, silent.host, silent.reason);
        printer.warn(&crate::human::inert(&text));
    }
    Ok(())
}

fn outcome_of(remains: &Remains, report: &StaleReport, request: &ReapRequest) -> String {
    let wanted = remains.known || request.unknown;
    match (&remains.problem, remains.removed, report.applied) {
        (Some(problem), ..) => format!("NOT removed: {problem}"),
        (None, true, _) => "removed".into(),
        (None, false, false) if wanted => "would be removed".into(),
        _ => "kept: --unknown removes it too, if it is not another installation's".into(),
    }
}

fn outcome_of_row(row: &EmptyRow, report: &StaleReport) -> String {
    match (&row.problem, row.ended, report.applied) {
        (Some(problem), ..) => format!("NOT ended: {problem}"),
        (None, true, _) => "ended".into(),
        (None, false, false) => "would be ended".into(),
        (None, false, true) => "goes on: it lives again".into(),
    }
}
