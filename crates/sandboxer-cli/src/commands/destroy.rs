//! `destroy`: several at once; one that fails does not stop the others.

use sandboxer_core::error::Failure;
use sandboxer_core::sandbox::Sandbox;
use sandboxer_core::{Error, Result};
use serde_json::json;

use super::{list, show};
use crate::api::{Api, ListQuery};
use crate::args::DestroyArgs;
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};

pub(super) async fn run(args: DestroyArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let ids = if args.all { every_id(api).await? } else { args.ids };
    let mut worst = ExitStatus::SUCCESS;
    let (mut destroyed, mut failures) = (Vec::new(), Vec::new());
    for id in ids {
        match destroy(&id, api).await {
            Ok(sandbox) => {
                if !printer.is_json() {
                    printer.line(&sandbox.sandbox_id.to_string())?;
                    tell_cost(&sandbox, printer);
                }
                destroyed.push(sandbox);
            }
            Err(error) => {
                failures.push(json!({ "sandbox_id": id, "error": Failure::from(&error) }));
                worst = worst.max(printer.error(&error));
            }
        }
    }
    if printer.is_json() {
        printer.document(&json!({ "items": destroyed, "errors": failures }))?;
    }
    Ok(worst)
}

/// What it cost, line by line, beside the data: on stderr.
fn tell_cost(sandbox: &Sandbox, printer: &Printer) {
    let Some(cost) = &sandbox.cost else { return };
    printer.note(&show::charged(cost));
    if !cost.items.is_empty() {
        for line in show::items(&cost.items).lines() {
            printer.note(&format!("  {line}"));
        }
    }
}

async fn destroy(id: &str, api: &dyn Api) -> Result<Sandbox, Error> {
    api.destroy(id.parse()?).await
}

async fn every_id(api: &dyn Api) -> Outcome<Vec<String>> {
    let page = list::collect(api, &ListQuery::default(), None, None).await?;
    Ok(page.items.iter().map(|sandbox| sandbox.sandbox_id.to_string()).collect())
}
