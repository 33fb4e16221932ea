//! One table from the engine's answers to our kinds.

use bollard::errors::Error as Engine;
use sandboxer_core::{Error, ErrorKind, Result};

/// Maps an answer of the engine. `doing` completes "the engine failed to …".
pub(crate) fn map(error: Engine, doing: &str) -> Error {
    if let Engine::DockerResponseServerError { status_code, message } = &error {
        return said(*status_code, message, doing);
    }
    match error {
        Engine::DockerStreamError { error } => said(500, &error, doing),
        Engine::RequestTimeoutError => {
            Error::new(ErrorKind::Timeout, format!("the docker engine took too long to {doing}"))
        }
        other => unreachable(other),
    }
}

/// No answer at all: the engine is not there, or went away in the middle.
pub(crate) fn unreachable(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Unreachable, "the docker engine does not answer")
        .with_source(source)
        .with_hint("is dockerd running, and may this user use its socket? `docker version` tells; DOCKER_HOST names another socket")
}

/// What the engine said, by status and, where several things share one, by its words.
pub(crate) fn said(status: u16, message: &str, doing: &str) -> Error {
    let words = message.trim();
    let kind = match status {
        _ if is_full(words) => ErrorKind::NoSpace,
        404 if words.contains("o such image") => ErrorKind::ImageNotFound,
        404 if words.contains("o such container") => ErrorKind::SandboxNotFound,
        404 if words.contains("o such exec") => ErrorKind::ExecNotFound,
        404 => ErrorKind::NotFound,
        409 if words.contains("is not running") => ErrorKind::SandboxNotFound,
        409 => ErrorKind::Conflict,
        400 => ErrorKind::InvalidInput,
        503 => ErrorKind::Unreachable,
        _ => ErrorKind::BackendFailed,
    };
    let error = Error::new(kind, format!("the docker engine failed to {doing}: {words}"));
    match kind {
        ErrorKind::NoSpace => error.with_hint("`docker system df` shows what takes the space"),
        _ => error,
    }
}

pub(crate) fn is_full(words: &str) -> bool {
    words.contains("no space left on device") || words.contains("No space left on device")
}

/// The state of an object that may be gone: `None` for a 404.
pub(crate) fn optional<T>(answer: Result<T, Engine>, doing: &str) -> Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Engine::DockerResponseServerError { status_code: 404, .. }) => Ok(None),
        Err(error) => Err(map(error, doing)),
    }
}

/// The sandbox is not in the engine any more.
pub(crate) fn gone(tag: &str) -> Error {
    Error::new(ErrorKind::SandboxNotFound, format!("the container of {tag} is gone"))
        .with_hint("it ended, or the docker engine was restarted; `sandboxer recreate` makes a new one")
}
