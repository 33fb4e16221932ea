//! `fork`: several sandboxes from one. Those that were made stay, also when others failed.

use sandboxer_core::{Error, ErrorKind};
use sandboxer_engine::ForkRequest;

use crate::api::Api;
use crate::args::ForkArgs;
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};

pub(super) async fn run(args: &ForkArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let request = ForkRequest { count: args.count, ttl: args.ttl };
    let forked = api.fork(args.id.parse()?, request).await?;
    if printer.is_json() {
        printer.document(&forked)?;
    } else {
        for sandbox in &forked.items {
            printer.line(&sandbox.sandbox_id.to_string())?;
        }
    }
    for failure in &forked.errors {
        let kind = ErrorKind::from_code(&failure.code).unwrap_or(ErrorKind::BackendFailed);
        let error = Error::new(kind, failure.message.clone());
        printer.error(&match &failure.hint {
            Some(hint) => error.with_hint(hint.clone()),
            None => error,
        });
    }
    Ok(if forked.errors.is_empty() { ExitStatus::SUCCESS } else { ExitStatus::FAILURE })
}
