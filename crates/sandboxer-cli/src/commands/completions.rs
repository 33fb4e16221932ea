//! `completions`: the script for a shell.

use clap::CommandFactory as _;
use serde_json::json;

use crate::args::{Cli, CompletionsArgs};
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};

pub(super) fn run(args: &CompletionsArgs, printer: &Printer) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sandboxer", &mut script);
    if printer.is_json() {
        let script = String::from_utf8_lossy(&script);
        printer.document(&json!({ "shell": args.shell.to_string(), "script": script }))?;
    } else {
        printer.data(&script)?;
    }
    Ok(ExitStatus::SUCCESS)
}
