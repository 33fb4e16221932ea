//! `port`: a local address whose connections end in a sandbox, until interrupted.

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use sandboxer_core::{Error, ErrorKind, Result, SandboxId};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::api::Api;
use crate::args::PortArgs;
use crate::printer::Printer;
use crate::signals::Signals;
use crate::status::{ExitStatus, Outcome};

/// More wait in the kernel's queue.
const MOST_AT_ONCE: usize = 512;

pub(super) async fn run(args: &PortArgs, api: &dyn Api, printer: &Printer) -> Outcome {
    let id: SandboxId = args.id.parse()?;
    check(id, api).await?;
    let listener = TcpListener::bind(args.listen).await.map_err(|source| cannot_listen(args, source))?;
    let address = listener.local_addr().map_err(|source| cannot_listen(args, source))?;
    // Before the address is known to anybody, so that no signal comes too early.
    let mut signals = Signals::new()?;
    if printer.is_json() {
        printer.document(&json!({ "sandbox_id": id, "port": args.port, "address": address }))?;
    } else {
        printer.line(&address.to_string())?;
        if printer.talks() {
            printer.note(&format!("forwarding to port {} of {id}; Ctrl-C ends it", args.port));
        }
    }
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            _ = signals.next() => return Ok(ExitStatus::SUCCESS),
            accepted = listener.accept(), if connections.len() < MOST_AT_ONCE => match accepted {
                Ok((stream, _)) => connections.push(forward(stream, id, args.port, api)),
                Err(source) => {
                    printer.warn(&format!("a connection could not be accepted: {source}"));
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            },
            Some(ended) = connections.next(), if !connections.is_empty() => match ended {
                Ok(()) => {}
                // It will not come back under this id.
                Err(error) if matches!(error.kind(), ErrorKind::IllegalState | ErrorKind::SandboxNotFound) => {
                    return Err(error.into());
                }
                Err(error) => printer.warn(&crate::human::inert(&error.chain().join(": "))),
            },
        }
    }
}

/// What cannot work at all is said before anybody connects. Whether something listens is found out by connecting, which
/// is left to whoever wants something from it.
async fn check(id: SandboxId, api: &dyn Api) -> Result<()> {
    let sandbox = api.get(id).await?;
    if !sandbox.state.is_usable() {
        let error = Error::new(ErrorKind::IllegalState, format!("sandbox {id} is {}", sandbox.state));
        return Err(match sandbox.state {
            sandboxer_core::State::Paused => error.with_hint(format!("`sandboxer resume {id}` first")),
            _ => error,
        });
    }
    let extension = api.extension(&sandbox.extension).await?.description;
    if !extension.capability.port {
        return Err(Error::unsupported(&extension.id, "ports"));
    }
    Ok(())
}

async fn forward(mut outer: TcpStream, id: SandboxId, port: u16, api: &dyn Api) -> Result<()> {
    let mut inner = api.port(id, port).await?;
    let _ = outer.set_nodelay(true);
    // Whoever hangs up in the middle has a reason of their own.
    let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
    Ok(())
}

fn cannot_listen(args: &PortArgs, source: std::io::Error) -> Error {
    let kind = match source.kind() {
        std::io::ErrorKind::AddrInUse => ErrorKind::Conflict,
        std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        _ => ErrorKind::InvalidInput,
    };
    Error::new(kind, format!("cannot listen on {}", args.listen))
        .with_source(source)
        .with_hint("choose another address with `--listen`; port 0 takes a free one")
}
