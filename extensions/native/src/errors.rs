//! One table from the runtime's errors to ours.

use sandboxer_core::{Error, ErrorKind, Retry};
use sandboxer_runtime::{ErrorKind as Kind, RuntimeError};

pub(crate) fn map(error: RuntimeError) -> Error {
    let kind = match &error.kind {
        Kind::MissingControl { .. } => ErrorKind::IsolationUnavailable,
        Kind::NotRunning => ErrorKind::SandboxNotFound,
        Kind::Exists => ErrorKind::Conflict,
        Kind::InvalidSpec | Kind::NotADirectory | Kind::IsADirectory | Kind::UnsafePath => {
            ErrorKind::InvalidInput
        }
        Kind::Refused => ErrorKind::MountRefused,
        Kind::NotFound => ErrorKind::NotFound,
        Kind::Permission => ErrorKind::Denied,
        Kind::TooLarge => ErrorKind::TooLarge,
        Kind::NoSpace => ErrorKind::NoSpace,
        Kind::Busy => ErrorKind::RateLimited,
        Kind::Timeout => ErrorKind::Timeout,
        Kind::Io | Kind::Protocol => ErrorKind::BackendFailed,
    };
    let retry = if error.is_temporary() { Retry::Temporary } else { kind.retry() };
    let mapped =
        Error::new(kind, error.to_string()).with_retry(retry).with_context("step", error.step.clone());
    match error.hint {
        Some(hint) => mapped.with_hint(hint),
        None => mapped,
    }
}
