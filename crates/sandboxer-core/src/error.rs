//! The one error of the house: what kind it is, whether a retry makes sense, and what to do about it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::duration::Dur;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as one table: name, stable code, exit code, HTTP status, whether it may pass by itself.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident, $code:literal, $exit:literal, $http:literal, $retry:ident;)*) => {
        /// What went wrong. Codes, exit codes and HTTP statuses are public and stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorKind { $($(#[$doc])* $name,)* }

        impl ErrorKind {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The stable name in the HTTP envelope.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// The exit code of the command line.
            pub const fn exit_code(self) -> u8 {
                match self { $(Self::$name => $exit,)* }
            }

            /// The status of the HTTP answer.
            pub const fn http_status(self) -> u16 {
                match self { $(Self::$name => $http,)* }
            }

            /// Whether the same request may succeed later.
            pub const fn retry(self) -> Retry {
                match self { $(Self::$name => Retry::$retry,)* }
            }
        }
    };
}

kinds! {
    /// A value that cannot be: a duration, a name, a body.
    InvalidInput, "invalid_input", 2, 400, Permanent;
    /// A TTL above what the profile allows.
    TtlAboveMax, "ttl_above_max", 2, 400, Permanent;
    /// A profile file that does not follow the schema.
    InvalidProfile, "invalid_profile", 2, 400, Permanent;
    /// A body, path or archive above its bound.
    TooLarge, "too_large", 2, 413, Permanent;
    SandboxNotFound, "sandbox_not_found", 3, 404, Permanent;
    ProfileNotFound, "profile_not_found", 3, 404, Permanent;
    ExtensionNotFound, "extension_not_found", 3, 404, Permanent;
    ExecNotFound, "exec_not_found", 3, 404, Permanent;
    HostNotFound, "host_not_found", 3, 404, Permanent;
    SnapshotNotFound, "snapshot_not_found", 3, 404, Permanent;
    /// An image that the backend does not have and cannot get.
    ImageNotFound, "image_not_found", 3, 404, Permanent;
    /// A file, key, route or event that is not there.
    NotFound, "not_found", 3, 404, Permanent;
    /// Somebody else got there first, or the target already exists.
    Conflict, "conflict", 4, 409, Permanent;
    IllegalState, "illegal_state", 4, 409, Permanent;
    /// An idempotency key that came before with another body.
    IdempotencyMismatch, "idempotency_mismatch", 4, 409, Permanent;
    /// No valid key, or none at all.
    Unauthenticated, "unauthenticated", 5, 401, Permanent;
    /// The caller may not do this.
    Denied, "denied", 5, 403, Permanent;
    /// A host path that no sandbox may see.
    MountRefused, "mount_refused", 5, 403, Permanent;
    /// A host that shows another key than the pinned one, or one that nobody has confirmed.
    HostKeyRefused, "host_key_refused", 5, 403, Permanent;
    /// A compose file, template or option that asks for more than the profile allows.
    Refused, "refused", 5, 403, Permanent;
    InsufficientCredits, "insufficient_credits", 6, 402, Permanent;
    /// No extension fits the request, or none that fits is up.
    NoBackend, "no_backend", 7, 503, Temporary;
    /// The extension cannot do this at all.
    Unsupported, "unsupported", 7, 501, Permanent;
    /// A required isolation control is missing on the machine that would run the sandbox.
    IsolationUnavailable, "isolation_unavailable", 7, 503, Permanent;
    /// A host or an engine that does not answer.
    Unreachable, "unreachable", 7, 503, Temporary;
    /// Too many requests, creates or execs at once.
    RateLimited, "rate_limited", 1, 429, Temporary;
    Timeout, "timeout", 124, 504, Temporary;
    /// The caller went away or pressed Ctrl-C.
    Cancelled, "cancelled", 130, 499, Permanent;
    /// A setup command of the profile failed.
    SetupFailed, "setup_failed", 1, 422, Permanent;
    /// An image build failed; its last words are in the error.
    BuildFailed, "build_failed", 1, 422, Permanent;
    /// The backend said no or broke.
    BackendFailed, "backend_failed", 1, 502, Temporary;
    /// A destroy that left something behind; it stays visible and is tried again.
    CleanupFailed, "cleanup_failed", 1, 502, Temporary;
    NoSpace, "no_space", 1, 507, Temporary;
    StoreFailed, "store_failed", 1, 500, Temporary;
    /// Another process held the store for too long.
    StoreBusy, "store_busy", 1, 503, Temporary;
    /// A defect of ours.
    Internal, "internal", 1, 500, Permanent;
}

impl ErrorKind {
    /// The kind with this stable code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.code() == code)
    }
}

/// Whether trying again makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    Permanent,
    Temporary,
}

/// Whose fault a failure is, seen from the router: what kind of trouble a backend has. A failure without a class is the
/// request's own, and no other backend would do better.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The backend does not accept our key.
    Auth,
    /// Too many requests there.
    Quota,
    /// Our account there is out of credit.
    Payment,
    /// It is full.
    Capacity,
    Timeout,
    /// It cannot be reached.
    Network,
    /// It broke.
    Backend,
}

impl Class {
    pub const ALL: &'static [Self] = &[
        Self::Auth,
        Self::Quota,
        Self::Payment,
        Self::Capacity,
        Self::Timeout,
        Self::Network,
        Self::Backend,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Quota => "quota",
            Self::Payment => "payment",
            Self::Capacity => "capacity",
            Self::Timeout => "timeout",
            Self::Network => "network",
            Self::Backend => "backend",
        }
    }

    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|class| class.as_str() == text)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error with its kind, context, hint and cause. `Display` gives the message alone; the cause is `source()`.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    retry: Retry,
    message: String,
    hint: Option<String>,
    context: Vec<(&'static str, String)>,
    class: Option<Class>,
    retry_after: Option<Dur>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let retry = kind.retry();
        Self(Box::new(Inner {
            kind,
            retry,
            message: message.into(),
            hint: None,
            context: Vec::new(),
            class: None,
            retry_after: None,
            source: None,
        }))
    }

    /// Something the extension cannot do, with the reason.
    pub fn unsupported(extension: &str, what: &str) -> Self {
        Self::new(ErrorKind::Unsupported, format!("{extension} does not support {what}"))
            .with_context("extension", extension)
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn with_context(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.0.context.push((key, value.into()));
        self
    }

    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.0.retry = retry;
        self
    }

    /// What kind of trouble the backend has, where the kind of the error does not say it.
    #[must_use]
    pub fn with_class(mut self, class: Class) -> Self {
        self.0.class = Some(class);
        self
    }

    /// The backend said when to come again.
    #[must_use]
    pub fn with_retry_after(mut self, span: Dur) -> Self {
        self.0.retry_after = Some(span);
        self
    }

    /// What kind of trouble the backend has; nothing when the request itself is at fault.
    pub fn class(&self) -> Option<Class> {
        self.0.class.or(match self.0.kind {
            ErrorKind::Unauthenticated | ErrorKind::HostKeyRefused => Some(Class::Auth),
            ErrorKind::RateLimited => Some(Class::Quota),
            ErrorKind::InsufficientCredits => Some(Class::Payment),
            ErrorKind::NoSpace | ErrorKind::NoBackend => Some(Class::Capacity),
            ErrorKind::Timeout => Some(Class::Timeout),
            ErrorKind::Unreachable => Some(Class::Network),
            ErrorKind::BackendFailed if self.0.retry == Retry::Temporary => Some(Class::Backend),
            _ => None,
        })
    }

    pub fn retry_after(&self) -> Option<Dur> {
        self.0.retry_after
    }

    /// Marks an error of a provision that came before anything was made: nothing need be taken down.
    #[must_use]
    pub fn without_effect(self) -> Self {
        self.with_context(Self::EFFECT.0, Self::EFFECT.1)
    }

    /// Takes that back, where something else may have been made.
    #[must_use]
    pub fn with_effect(mut self) -> Self {
        self.0.context.retain(|(key, value)| (*key, value.as_str()) != Self::EFFECT);
        self
    }

    pub fn had_no_effect(&self) -> bool {
        self.0.context.iter().any(|(key, value)| (*key, value.as_str()) == Self::EFFECT)
    }

    const EFFECT: (&'static str, &'static str) = ("effect", "none");

    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    pub fn retry(&self) -> Retry {
        self.0.retry
    }

    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    pub fn context(&self) -> &[(&'static str, String)] {
        &self.0.context
    }

    /// The message and every cause below it, outermost first.
    pub fn chain(&self) -> Vec<String> {
        let mut out = vec![self.to_string()];
        let mut next = self.source();
        while let Some(error) = next {
            out.push(error.to_string());
            next = error.source();
        }
        out
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind.code(), self.chain().join(": "))
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// What of an error is kept with a sandbox and shown to whoever looks at it later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Failure {
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Self {
            code: error.kind().code().to_owned(),
            message: error.chain().join(": "),
            hint: error.hint().map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_found_again() {
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_code(kind.code()), Some(*kind));
        }
    }

    #[test]
    fn what_is_wrong_with_the_request_has_no_class() {
        for (kind, class) in [
            (ErrorKind::Unreachable, Some(Class::Network)),
            (ErrorKind::RateLimited, Some(Class::Quota)),
            (ErrorKind::NoSpace, Some(Class::Capacity)),
            (ErrorKind::BackendFailed, Some(Class::Backend)),
            (ErrorKind::ImageNotFound, None),
            (ErrorKind::SetupFailed, None),
            (ErrorKind::Cancelled, None),
        ] {
            assert_eq!(Error::new(kind, "x").class(), class, "{kind:?}");
        }
        let permanent = Error::new(ErrorKind::BackendFailed, "x").with_retry(Retry::Permanent);
        assert_eq!(permanent.class(), None);
        assert_eq!(permanent.with_class(Class::Payment).class(), Some(Class::Payment));
        for class in Class::ALL {
            assert_eq!(Class::from_text(class.as_str()), Some(*class));
        }
    }

    #[test]
    fn the_chain_names_each_cause_once() {
        let inner = std::io::Error::other("disk on fire");
        let error = Error::new(ErrorKind::StoreFailed, "the store cannot be opened").with_source(inner);
        assert_eq!(error.chain(), ["the store cannot be opened", "disk on fire"]);
        assert_eq!(error.to_string(), "the store cannot be opened");
    }
}
