//! `meters`: what was used, interval by interval.

use sandboxer_core::ledger::Meter;
use sandboxer_core::page::{Limit, Page};

use super::show;
use crate::api::{Api, MeterQuery};
use crate::args::{MetersCommand, MetersListArgs};
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};
use crate::table::Rows;

pub(super) async fn run(command: MetersCommand, api: &dyn Api, printer: &Printer) -> Outcome {
    let MetersCommand::List(args) = command;
    let page = collect(args, api).await?;
    if printer.is_json() {
        printer.document(&page)?;
        return Ok(ExitStatus::SUCCESS);
    }
    if page.items.is_empty() {
        printer.note("nothing was metered yet");
        return Ok(ExitStatus::SUCCESS);
    }
    let mut rows = Rows::new(["SANDBOX", "SEQ", "METER", "STATE", "STARTED", "TIME", "COST", "WHAT"]);
    for meter in &page.items {
        let runs = meter.ended_at.is_none();
        let assumed = if meter.assumed { " (assumed)" } else { "" };
        rows.row([
            meter.sandbox_id.to_string(),
            meter.sequence.to_string(),
            meter.meter.clone(),
            meter.state.as_str().into(),
            meter.started_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            time(meter),
            if runs { String::new() } else { meter.cost.to_string() },
            format!("{}{assumed}", meter.what),
        ]);
    }
    rows.print(printer)?;
    if let Some(cursor) = &page.next_cursor {
        printer.note(&format!("there are more: --cursor {cursor}"));
    }
    Ok(ExitStatus::SUCCESS)
}

fn time(meter: &Meter) -> String {
    match meter.ended_at {
        None => "runs".into(),
        Some(_) => show::time(&meter.meter, meter.time),
    }
}

async fn collect(args: MetersListArgs, api: &dyn Api) -> Outcome<Page<Meter>> {
    let query = MeterQuery {
        sandbox: args.sandbox.map(|id| id.parse()).transpose()?,
        extension: args.extension,
        from: args.span.from,
        until: args.span.until,
    };
    let (mut items, mut cursor): (Vec<Meter>, _) = (Vec::new(), args.cursor);
    loop {
        let left = args.limit.map_or(Limit::MAX, |limit| limit - items.len() as u32);
        let page = api.meters(&query, cursor.as_deref(), Limit::new(left.min(Limit::MAX))?).await?;
        items.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() || args.limit.is_some_and(|limit| items.len() as u32 >= limit) {
            return Ok(Page { items, next_cursor: cursor });
        }
    }
}
