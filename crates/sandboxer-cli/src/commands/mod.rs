//! One file a command. Each gets its arguments, the API and the printer, and returns how it ended.

mod completions;
mod cp;
mod create;
mod credits;
mod destroy;
mod doctor;
mod estimate;
mod events;
mod exec;
mod expire;
mod extend_ttl;
mod extensions;
mod fork;
mod get;
mod hosts;
mod inspect;
mod keys;
mod list;
mod logs;
mod meters;
mod pause;
mod port;
mod profiles;
mod reap_stale;
mod recreate;
mod route;
mod serve;
mod session;
mod shell;
mod show;
mod snapshots;
mod sync;
mod webhooks;

use crate::args::{Cli, Command};
use crate::compose::{self, Settings};
use crate::printer::Printer;
use crate::signals::Signals;
use crate::status::Outcome;
use crate::{deliver, logging};

/// Runs one command line.
pub(crate) async fn run(cli: Cli, printer: &Printer) -> Outcome {
    let Cli { globals, command } = cli;
    // The only command that needs neither a home nor a store.
    if let Command::Completions(args) = &command {
        return completions::run(args, printer);
    }
    let settings = Settings::load(&globals)?;
    logging::start(&settings, printer, matches!(command, Command::Serve(_)))?;
    let command = match command {
        Command::Serve(args) => return serve::run(args, &settings, printer).await,
        Command::Doctor(_) => return doctor::run(&settings, printer).await,
        Command::Deliver => return Ok(deliver::run(&settings).await?),
        Command::Profiles(command) if profiles::is_local(&command) => {
            return profiles::validate(command, &settings, printer);
        }
        other => other,
    };
    let api = compose::api(&settings).await?;
    let api = &*api;
    let outcome = match command {
        Command::Create(args) => create::run(*args, api, printer).await,
        Command::Get(args) => get::run(&args, api, printer).await,
        Command::List(args) => list::run(args, api, printer).await,
        Command::Destroy(args) => destroy::run(args, api, printer).await,
        Command::Recreate(args) => recreate::run(&args, api, printer).await,
        Command::Exec(args) => exec::run(*args, api, printer).await,
        Command::Shell(args) => shell::run(args, api, printer).await,
        Command::Cp(args) => cp::run(&args, api, printer).await,
        Command::Sync(args) => sync::run(args, api, printer).await,
        Command::Logs(args) => logs::run(&args, api, printer).await,
        Command::Port(args) => port::run(&args, api, printer).await,
        Command::Pause(args) => pause::run(&args, api, printer).await,
        Command::Resume(args) => pause::resume(&args, api, printer).await,
        Command::Snapshot(args) => snapshots::take(&args, api, printer).await,
        Command::Restore(args) => snapshots::restore(args, api, printer).await,
        Command::Fork(args) => fork::run(&args, api, printer).await,
        Command::Snapshots(command) => snapshots::run(command, api, printer).await,
        Command::ExtendTtl(args) => extend_ttl::run(&args, api, printer).await,
        Command::Expire(args) => expire::run(&args, api, printer).await,
        Command::Profiles(command) => profiles::run(command, api, printer).await,
        Command::Extensions(command) => extensions::run(command, api, printer).await,
        Command::Hosts(command) => hosts::run(command, api, printer).await,
        Command::ReapStale(args) => reap_stale::run(args, api, printer).await,
        Command::Route(command) => route::run(command, api, printer).await,
        Command::Estimate(args) => estimate::run(*args, api, printer).await,
        Command::Webhooks(command) => webhooks::run(command, api, printer).await,
        Command::Credits(command) => credits::run(command, api, printer).await,
        Command::Meters(command) => meters::run(command, api, printer).await,
        Command::Events(args) => events::run(args, api, printer).await,
        Command::Inspect(command) => inspect::run(command, api, printer).await,
        Command::Keys(command) => keys::run(command, api, printer).await,
        Command::Serve(_) | Command::Doctor(_) | Command::Deliver | Command::Completions(_) => {
            unreachable!("answered above")
        }
    };
    // Whoever has the answer may go at once.
    match Signals::new() {
        Ok(mut signals) => tokio::select! {
            () = api.finish() => {}
            _ = signals.next() => return outcome,
        },
        Err(_) => api.finish().await,
    }
    if api.owes_delivery().await {
        deliver::start(&settings);
    }
    outcome
}
