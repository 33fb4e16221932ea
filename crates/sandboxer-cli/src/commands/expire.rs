//! `expire`: the sandboxes whose time is over.

use sandboxer_core::page::Page;

use super::show;
use crate::api::Api;
use crate::args::ExpireArgs;
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};

pub(super) async fn run(args: &ExpireArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let items = api.expire(args.apply).await?;
    if printer.is_json() {
        printer.document(&Page { items, next_cursor: None })?;
        return Ok(ExitStatus::SUCCESS);
    }
    if items.is_empty() {
        printer.note("nothing has outlived its time");
        return Ok(ExitStatus::SUCCESS);
    }
    show::list(&items, printer)?;
    if !args.apply {
        printer.note("nothing was changed; `sandboxer expire --apply` ends them");
    }
    Ok(ExitStatus::SUCCESS)
}
