//! How a command ends.

use std::process::ExitCode;

use sandboxer_core::{Error, ErrorKind};

/// The exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExitStatus(pub(crate) u8);

impl ExitStatus {
    pub(crate) const SUCCESS: Self = Self(0);
    /// Done in part: the rest was said on stderr.
    pub(crate) const FAILURE: Self = Self(1);
    /// Whoever read our output is gone, as shells report it for a command that SIGPIPE ended.
    pub(crate) const PIPE: Self = Self(141);

    pub(crate) const fn of(kind: ErrorKind) -> Self {
        Self(kind.exit_code())
    }

    /// The code of a command inside, which is one byte on every system that we run on.
    pub(crate) fn of_command(code: i32) -> Self {
        Self(u8::try_from(code & 0xff).unwrap_or(1))
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status.0)
    }
}

/// Why a command did not come to its end.
#[derive(Debug)]
pub(crate) enum Stop {
    Error(Error),
    /// Nobody reads stdout any more. Not worth a word.
    BrokenPipe,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

pub(crate) type Outcome<T = ExitStatus> = Result<T, Stop>;

/// An input or output error of this process, with what it was doing.
pub(crate) fn io_error(what: impl Into<String>, source: std::io::Error) -> Error {
    let kind = match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        _ => ErrorKind::BackendFailed,
    };
    Error::new(kind, what).with_source(source)
}
