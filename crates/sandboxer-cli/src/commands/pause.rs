//! `pause` and `resume`.

use sandboxer_core::sandbox::Sandbox;

use crate::api::Api;
use crate::args::{PauseArgs, ResumeArgs};
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};

pub(super) async fn run(args: &PauseArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    answer(&api.pause(args.id.parse()?).await?, printer)
}

pub(super) async fn resume(args: &ResumeArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    answer(&api.resume(args.id.parse()?).await?, printer)
}

fn answer(sandbox: &Sandbox, printer: &Printer) -> Outcome {
    if printer.is_json() {
        printer.document(sandbox)?;
    } else {
        printer.line(&format!("{} {}", sandbox.sandbox_id, sandbox.state))?;
    }
    Ok(ExitStatus::SUCCESS)
}
