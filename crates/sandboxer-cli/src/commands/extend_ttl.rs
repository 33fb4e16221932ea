//! `extend-ttl`: a later end.

use jiff::Timestamp;
use sandboxer_core::{Money, SandboxId};

use crate::api::Api;
use crate::args::ExtendTtlArgs;
use crate::human;
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};

pub(super) async fn run(args: &ExtendTtlArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let id: SandboxId = args.id.parse()?;
    if printer.is_json() {
        printer.document(&api.extend_ttl(id, args.duration).await?)?;
        return Ok(ExitStatus::SUCCESS);
    }
    let before = api.get(id).await?;
    let sandbox = api.extend_ttl(id, args.duration).await?;
    let end = human::moment(sandbox.expires_at, Timestamp::now());
    if sandbox.expires_at == before.expires_at {
        printer.line(&format!("{id} expires {end}, as before: that is no earlier than what was asked"))?;
        return Ok(ExitStatus::SUCCESS);
    }
    printer.line(&format!("{id} expires {end}"))?;
    let more = Money::from_nanos(sandbox.quote.amount.nanos() - before.quote.amount.nanos());
    if more > Money::ZERO {
        printer.note(&format!("{more} more are held, {} in all", sandbox.quote.amount));
    }
    Ok(ExitStatus::SUCCESS)
}
