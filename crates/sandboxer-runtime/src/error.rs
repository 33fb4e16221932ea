//! The one error type of the crate. It crosses process boundaries, so it carries data, not sources.

use serde::{Deserialize, Serialize};

/// What went wrong, for callers that decide on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum ErrorKind {
    /// A required isolation control is not available; nothing was started.
    MissingControl { control: String },
    /// No living sandbox has this id.
    NotRunning,
    /// Something of that name is already there.
    Exists,
    /// The request itself is wrong; retrying it unchanged cannot help.
    InvalidSpec,
    /// A mount source or target is not allowed.
    Refused,
    /// No file of that name, inside the sandbox.
    NotFound,
    /// The file system or the sandbox's policy said no.
    Permission,
    /// A path component is not a directory.
    NotADirectory,
    /// A file was expected.
    IsADirectory,
    /// The file, archive or message is above its bound.
    TooLarge,
    /// A path or archive entry tries to leave where it belongs.
    UnsafePath,
    /// No space or no inodes left.
    NoSpace,
    /// A bound on concurrent work is reached; a later retry may succeed.
    Busy,
    /// The kernel or the file system failed in another way.
    Io,
    /// The other side broke the protocol or went away in the middle.
    Protocol,
    /// An answer did not come in its time.
    Timeout,
}

/// A failed operation: what kind, at which step, with which errno, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}{}", self.suffix())]
pub struct RuntimeError {
    pub kind: ErrorKind,
    /// The step that failed, such as `overlay` or `uid_map`.
    pub step: String,
    pub message: String,
    pub errno: Option<i32>,
    pub hint: Option<String>,
}

pub type Result<T> = std::result::Result<T, RuntimeError>;

impl RuntimeError {
    pub fn new(kind: ErrorKind, step: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, step: step.into(), message: message.into(), errno: None, hint: None }
    }

    /// An error of the operating system at a named step.
    pub fn io(step: impl Into<String>, message: impl Into<String>, error: &std::io::Error) -> Self {
        let kind = match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => ErrorKind::NoSpace,
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => ErrorKind::Permission,
            _ if error.kind() == std::io::ErrorKind::TimedOut => ErrorKind::Timeout,
            _ => ErrorKind::Io,
        };
        let hint = match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Some("free some space or choose another state directory"),
            Some(libc::EROFS) => {
                Some("the state directory is on a read-only file system; choose another one")
            }
            Some(libc::EMFILE | libc::ENFILE) => Some("raise the limit of open files"),
            _ => None,
        };
        Self {
            kind,
            step: step.into(),
            message: match error.raw_os_error() {
                Some(_) => message.into(),
                None => format!("{}: {error}", message.into()),
            },
            errno: error.raw_os_error(),
            hint: hint.map(str::to_owned),
        }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidSpec, "validate", message)
    }

    pub fn protocol(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Protocol, "protocol", message)
    }

    pub fn missing(control: impl Into<String>, reason: impl Into<String>, hint: impl Into<String>) -> Self {
        let control = control.into();
        let message = format!("isolation control `{control}` is missing: {}", reason.into());
        Self::new(ErrorKind::MissingControl { control }, "probe", message).with_hint(hint)
    }

    pub fn not_running(id: &str) -> Self {
        Self::new(ErrorKind::NotRunning, "connect", format!("sandbox `{id}` is not running"))
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Whether the same request may succeed later without a change.
    pub fn is_temporary(&self) -> bool {
        matches!(self.kind, ErrorKind::Busy | ErrorKind::Timeout | ErrorKind::NoSpace)
    }

    fn suffix(&self) -> String {
        match self.errno {
            Some(errno) => format!(" (step {}: {})", self.step, std::io::Error::from_raw_os_error(errno)),
            None => String::new(),
        }
    }
}

/// Adds the step and a message to an operating-system error.
pub(crate) trait AtStep<T> {
    fn at(self, step: &'static str, message: impl Into<String>) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> AtStep<T> for std::result::Result<T, E> {
    fn at(self, step: &'static str, message: impl Into<String>) -> Result<T> {
        self.map_err(|error| RuntimeError::io(step, message, &error.into()))
    }
}
