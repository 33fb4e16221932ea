//! Log lines, on stderr. Commands are silent unless something breaks; a server tells what it does.

use sandboxer_core::{Error, ErrorKind, Result};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::compose::Settings;
use crate::printer::Printer;

/// Starts logging for the rest of the process.
pub(crate) fn start(settings: &Settings, printer: &Printer, serving: bool) -> Result<()> {
    let level = match (printer.is_quiet(), printer.verbosity(), serving) {
        (true, ..) => LevelFilter::OFF,
        (_, 0, false) => LevelFilter::ERROR,
        (_, 0, true) | (_, 1, false) => LevelFilter::INFO,
        (_, 1, true) | (_, 2, _) => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let json = match settings.log_format.as_deref() {
        None | Some("text") => false,
        Some("json") => true,
        Some(other) => {
            let said = sandboxer_core::suggest::printable(other);
            return Err(Error::new(ErrorKind::InvalidInput, format!("`{said}` is not a form of log lines"))
                .with_hint("SANDBOXER_LOG_FORMAT is `text` or `json`"));
        }
    };
    let builder =
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(printer.colors_logs() && !json);
    let filter = match &settings.log {
        Some(directives) => EnvFilter::try_new(directives).map_err(|source| {
            Error::new(ErrorKind::InvalidInput, "the log filter cannot be read")
                .with_source(source)
                .with_hint("SANDBOXER_LOG is a level such as `info`, or `sandboxer_engine=debug`")
        })?,
        // Parsing a filter costs more than most commands do; a plain level is free.
        None => {
            let builder = builder.with_max_level(level);
            // A second start keeps the first one's settings, which is what a test wants.
            let _ = if json { builder.json().try_init() } else { builder.try_init() };
            return Ok(());
        }
    };
    let builder = builder.with_env_filter(filter);
    let _ = if json { builder.json().try_init() } else { builder.try_init() };
    Ok(())
}
