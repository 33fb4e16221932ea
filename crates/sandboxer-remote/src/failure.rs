//! A command of ours that failed, as an error.

use sandboxer_core::{Error, ErrorKind};

use crate::command::Output;

/// The error for a failed step, with the host's last words. A full disk is told apart, whatever ran into it.
pub fn of(what: &str, output: &Output) -> Error {
    let words = output.last_words();
    let kind = if output.outcome.timed_out {
        ErrorKind::Timeout
    } else if is_no_space(&words) {
        ErrorKind::NoSpace
    } else {
        ErrorKind::BackendFailed
    };
    let error = Error::new(kind, format!("{what} failed with exit code {}", output.outcome.exit_code));
    if words.is_empty() { error } else { error.with_source(std::io::Error::other(words)) }
}

/// The words of every C library for a full disk or quota, and those of GNU tar, which does not pass them on.
pub(crate) fn is_no_space(words: &str) -> bool {
    ["No space left on device", "Disk quota exceeded", ": Wrote only "]
        .iter()
        .any(|needle| words.contains(needle))
}
