//! `serve`: the HTTP API until somebody says stop.

use sandboxer_core::{Error, ErrorKind};
use sandboxer_server::{ServeOptions, serve};
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::args::ServeArgs;
use crate::compose::{self, Role, Settings};
use crate::printer::Printer;
use crate::signals::Signals;
use crate::status::{ExitStatus, Outcome};

pub(super) async fn run(args: ServeArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let mut signals = Signals::new()?;
    let engine = compose::engine(settings, Role::Server).await?;
    let (told, bound) = oneshot::channel();
    let options = ServeOptions { on_bound: Some(told), ..ServeOptions::new(args.listen) };
    let shutdown = CancellationToken::new();
    let announce = async {
        match bound.await {
            Ok(address) => announce(&address.to_string(), printer),
            // The server ended before it listened; it says why.
            Err(_) => Ok(()),
        }
    };
    let stop = async {
        signals.next().await;
        printer.note("stopping; what is under way is finished first, a second signal ends it at once");
        shutdown.cancel();
        signals.next().await;
    };
    let serving = serve(engine, options, shutdown.clone());
    tokio::select! {
        (served, announced) = async { tokio::join!(serving, announce) } => {
            served?;
            announced?;
            Ok(ExitStatus::SUCCESS)
        }
        () = stop => Err(Error::new(ErrorKind::Cancelled, "the server was ended before it had finished").into()),
    }
}

fn announce(address: &str, printer: &Printer) -> Outcome<()> {
    let url = format!("http://{address}");
    if printer.is_json() {
        return printer.record(&json!({ "url": url, "listen": address }));
    }
    printer.note(&format!("serving on {url}"));
    Ok(())
}
