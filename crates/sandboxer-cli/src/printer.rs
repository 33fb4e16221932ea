//! The only place that prints: data to stdout, everything else to stderr.

use std::io::{self, IsTerminal as _, Write as _};

use owo_colors::OwoColorize as _;
use sandboxer_core::{Error, ErrorKind};
use serde::Serialize;

use crate::args::{Color, Globals};
use crate::human::inert;
use crate::status::{ExitStatus, Outcome, Stop, io_error};

/// Passed to every command. Knows whether colour, progress and notes are wanted.
pub(crate) struct Printer {
    json: bool,
    quiet: bool,
    verbose: u8,
    color_out: bool,
    color_err: bool,
}

/// What a piece of text means; shown by colour where there is any, and never by colour alone.
#[derive(Clone, Copy)]
pub(crate) enum Tone {
    Plain,
    Good,
    Warning,
    Bad,
    Strong,
    Faint,
}

impl Printer {
    pub(crate) fn new(globals: &Globals) -> Self {
        let colored = |terminal: bool| match globals.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                terminal && !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
        };
        Self {
            json: globals.json,
            quiet: globals.quiet,
            verbose: globals.verbose,
            color_out: colored(io::stdout().is_terminal()),
            color_err: colored(io::stderr().is_terminal()),
        }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    pub(crate) fn verbosity(&self) -> u8 {
        self.verbose
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    pub(crate) fn colors_logs(&self) -> bool {
        self.color_err
    }

    /// Notes and progress are for people: on a terminal, in tables, and not when they asked for silence.
    pub(crate) fn talks(&self) -> bool {
        !self.quiet && !self.json && io::stderr().is_terminal()
    }

    /// Text for stdout in its tone. Only for pieces of what [`Printer::line`] prints.
    pub(crate) fn tone(&self, tone: Tone, text: &str) -> String {
        if self.color_out { paint(tone, text) } else { text.to_owned() }
    }

    /// One line of data.
    pub(crate) fn line(&self, text: &str) -> Outcome<()> {
        self.data(format!("{text}\n").as_bytes())
    }

    /// Bytes of data, as they are.
    pub(crate) fn data(&self, bytes: &[u8]) -> Outcome<()> {
        let mut stdout = io::stdout().lock();
        written(stdout.write_all(bytes).and_then(|()| stdout.flush()))
    }

    /// One JSON document, indented for people.
    pub(crate) fn document<T: Serialize>(&self, value: &T) -> Outcome<()> {
        self.line(&serde_json::to_string_pretty(value).map_err(not_json)?)
    }

    /// One JSON document on one line, for streams.
    pub(crate) fn record<T: Serialize>(&self, value: &T) -> Outcome<()> {
        self.line(&serde_json::to_string(value).map_err(not_json)?)
    }

    /// Something worth knowing that is not data.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            self.say(text);
        }
    }

    /// Something that a careful person acts on.
    pub(crate) fn warn(&self, text: &str) {
        if !self.quiet {
            self.say(&format!("{} {text}", self.err_tone(Tone::Warning, "warning:")));
        }
    }

    /// An error with its causes and, last, what to do about it. Gives the exit code that goes with it.
    pub(crate) fn error(&self, error: &Error) -> ExitStatus {
        let mut text = format!("{} {}", self.err_tone(Tone::Bad, "error:"), inert(&error.to_string()));
        for cause in error.chain().iter().skip(1) {
            text.push_str(&format!("\n  caused by: {}", inert(cause)));
        }
        if let Some(hint) = error.hint() {
            text.push_str(&format!("\n\n{} {}", self.err_tone(Tone::Strong, "hint:"), inert(hint)));
        }
        self.say(&text);
        ExitStatus::of(error.kind())
    }

    /// stdout of a command inside, byte by byte what it wrote.
    pub(crate) fn stdout_stream(&self) -> tokio::io::Stdout {
        tokio::io::stdout()
    }

    /// Its stderr.
    pub(crate) fn stderr_stream(&self) -> tokio::io::Stderr {
        tokio::io::stderr()
    }

    /// A moving line on stderr for work that takes long; nothing where nobody would see it.
    pub(crate) fn progress(&self, text: &'static str) -> Progress {
        Progress { bar: None, text, wanted: self.talks() }
    }

    fn err_tone(&self, tone: Tone, text: &str) -> String {
        if self.color_err { paint(tone, text) } else { text.to_owned() }
    }

    /// Nobody can be told that stderr is gone, so that is not an error.
    fn say(&self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }
}

/// A spinner that appears only when the work has taken a moment.
pub(crate) struct Progress {
    bar: Option<indicatif::ProgressBar>,
    text: &'static str,
    wanted: bool,
}

impl Progress {
    pub(crate) const DELAY: std::time::Duration = std::time::Duration::from_millis(300);

    pub(crate) fn show(&mut self) {
        if self.wanted && self.bar.is_none() {
            let bar = indicatif::ProgressBar::new_spinner().with_message(self.text);
            bar.enable_steady_tick(std::time::Duration::from_millis(100));
            self.bar = Some(bar);
        }
    }

    /// Something new about the work: beside the spinner where there is one, as a line of its own where not.
    pub(crate) fn tell(&mut self, line: &str, printer: &Printer) {
        let line = inert(line);
        if !self.wanted {
            return printer.note(&line);
        }
        self.show();
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}: {line}", self.text));
        }
    }

    pub(crate) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.wanted = false;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

fn paint(tone: Tone, text: &str) -> String {
    match tone {
        Tone::Plain => text.to_owned(),
        Tone::Good => text.green().to_string(),
        Tone::Warning => text.yellow().bold().to_string(),
        Tone::Bad => text.red().bold().to_string(),
        Tone::Strong => text.bold().to_string(),
        Tone::Faint => text.dimmed().to_string(),
    }
}

fn written(result: io::Result<()>) -> Outcome<()> {
    match result {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Stop::BrokenPipe),
        Err(error) => Err(io_error("the answer cannot be written to stdout", error).into()),
    }
}

fn not_json(source: serde_json::Error) -> Error {
    Error::new(ErrorKind::Internal, "the answer cannot be written as JSON").with_source(source)
}
