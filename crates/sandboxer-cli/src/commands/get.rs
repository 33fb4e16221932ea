//! `get`: one sandbox.

use crate::api::Api;
use crate::args::GetArgs;
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};

pub(super) async fn run(args: &GetArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let sandbox = api.get(args.id.parse()?).await?;
    if printer.is_json() {
        printer.document(&sandbox)?;
    } else {
        super::show::sandbox(&sandbox, printer)?;
    }
    Ok(ExitStatus::SUCCESS)
}
