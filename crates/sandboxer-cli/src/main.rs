//! The binary `sandboxer`: parses the command line, runs one command, returns its exit code.
//!
//! Nothing here decides anything about sandboxes. Commands talk to an [`api::Api`], which is the engine of this very
//! process or a server; both give the same answers.

mod api;
mod args;
mod commands;
mod compose;
mod config;
mod deliver;
mod embedded;
mod human;
mod logging;
mod printer;
mod remote;
mod signals;
mod status;
mod table;
mod terminal;
mod tree;
mod trial;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command};
use printer::Printer;
use status::{ExitStatus, Stop};

fn main() -> ExitCode {
    // Before anything that could start a thread: the launcher forks.
    sandboxer_runtime::run_if_launcher();

    let cli = Cli::parse();
    let printer = Printer::new(&cli.globals);
    terminal::restore_on_panic();
    let runtime = match runtime(&cli.command) {
        Ok(runtime) => runtime,
        Err(source) => {
            let error = sandboxer_core::Error::new(
                sandboxer_core::ErrorKind::Internal,
                "the process cannot start its event loop",
            );
            return printer.error(&error.with_source(source)).into();
        }
    };
    let outcome = runtime.block_on(commands::run(cli, &printer));
    // A read of stdin that nobody waits for any more must not hold up the end.
    runtime.shutdown_background();
    match outcome {
        Ok(status) => status.into(),
        Err(Stop::BrokenPipe) => ExitStatus::SUCCESS.into(),
        Err(Stop::Error(error)) => printer.error(&error).into(),
    }
}

/// One thread is enough, and the quickest to start, for everything but a server.
fn runtime(command: &Command) -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = match command {
        Command::Serve(_) => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
            builder.worker_threads(processors.max(2));
            builder
        }
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    builder.enable_all().build()
}
