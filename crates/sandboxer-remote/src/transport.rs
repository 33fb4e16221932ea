//! What a way to a host gives for one command: three streams, and the news that it is over.

use std::future::Future;
use std::pin::Pin;

use sandboxer_core::Result;
use sandboxer_core::exec::{BoxRead, BoxWrite};

/// A shell that runs the bootstrap program, here or there.
pub(crate) struct Raw {
    pub(crate) stdin: BoxWrite,
    pub(crate) stdout: BoxRead,
    pub(crate) stderr: BoxRead,
    /// Resolves when the shell is gone, with its exit code where that is known, or when it cannot be heard any more.
    /// Dropping it closes the line.
    pub(crate) ended: Ended,
}

pub(crate) type Ended = Pin<Box<dyn Future<Output = Result<Option<i32>>> + Send>>;
