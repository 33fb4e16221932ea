//! `recreate`: the old one ends, a new one of the same kind begins.

use tokio_util::sync::CancellationToken;

use super::create;
use crate::api::Api;
use crate::args::RecreateArgs;
use crate::printer::Printer;
use crate::status::{ExitStatus, Outcome};

pub(super) async fn run(args: &RecreateArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let cancel = CancellationToken::new();
    let told = create::Told::new(printer);
    let work = api.recreate(args.id.parse()?, cancel.clone(), told.progress());
    let sandbox = create::until_done(work, cancel, told, api, printer).await?;
    create::answer(&sandbox, printer)?;
    Ok(ExitStatus::SUCCESS)
}
