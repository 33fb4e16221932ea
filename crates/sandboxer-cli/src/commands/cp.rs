//! `cp`: files and folders between here and sandboxes, with the rules that docker users know.

mod location;
mod transfer;

use serde_json::json;

use crate::api::Api;
use crate::args::CpArgs;
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};
use crate::tree::Copied;
use location::Location;

pub(super) async fn run(args: &CpArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let source = Location::parse(&args.source)?;
    let destination = Location::parse(&args.destination)?;
    let to_stdout = matches!(destination, Location::Stdio);
    let copied = match (source, destination) {
        (Location::Sandbox(from), Location::Sandbox(to)) => transfer::between(api, &from, &to).await?,
        (Location::Sandbox(from), Location::Local(to)) => transfer::out(api, &from, &to).await?,
        (Location::Sandbox(from), Location::Stdio) => transfer::to_stdout(api, &from, printer).await?,
        (Location::Local(from), Location::Sandbox(to)) => transfer::into(api, &from, &to).await?,
        (Location::Stdio, Location::Sandbox(to)) => transfer::from_stdin(api, &to).await?,
        (Location::Local(_) | Location::Stdio, Location::Local(_) | Location::Stdio) => {
            return Err(location::no_sandbox().into());
        }
    };
    answer(args, &copied, to_stdout, printer)
}

/// Nothing on success, as `cp` does it; what had to be left out is said and is a failure.
fn answer(args: &CpArgs, copied: &Copied, to_stdout: bool, printer: &Printer) -> Outcome {
    for left in &copied.left_out {
        printer.warn(&format!("left out {}", crate::human::inert(left)));
    }
    // stdout already carries the content.
    if printer.is_json() && !to_stdout {
        printer.document(&json!({
            "source": args.source,
            "destination": args.destination,
            "entries": copied.entries,
            "bytes": copied.bytes,
            "left_out": copied.left_out,
        }))?;
    }
    Ok(if copied.left_out.is_empty() { ExitStatus::SUCCESS } else { ExitStatus::FAILURE })
}
