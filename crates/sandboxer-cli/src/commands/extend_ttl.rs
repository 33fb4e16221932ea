//! `extend-ttl`: a later end.

use jiff::Timestamp;

use crate::api::Api;
use crate::args::ExtendTtlArgs;
use crate::human;
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};

pub(super) async fn run(args: &ExtendTtlArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let sandbox = api.extend_ttl(args.id.parse()?, args.duration).await?;
    if printer.is_json() {
        printer.document(&sandbox)?;
    } else {
        let end = human::moment(sandbox.expires_at, Timestamp::now());
        printer.line(&format!("{} expires {end}", sandbox.sandbox_id))?;
    }
    Ok(ExitStatus::SUCCESS)
}
