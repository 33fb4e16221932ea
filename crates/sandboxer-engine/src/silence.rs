//! Backends that did not answer when they were asked whether something lives: not asked again for a while, so that one
//! of them costs a listing or a start of the server one wait and not one for each of its sandboxes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandboxer_core::extension::{Handle, Life};
use sandboxer_core::host::LOCAL;
use sandboxer_core::{Error, ErrorKind, Result};
use sandboxer_store::Stored;

use crate::Engine;

/// How long a backend may take to answer.
const HERE: Duration = Duration::from_secs(5);
const ELSEWHERE: Duration = Duration::from_secs(30);
/// How long one that did not is left in peace.
const PEACE: Duration = Duration::from_secs(30);

/// Extension and host, with the moment from which on they are asked again.
#[derive(Default)]
pub(crate) struct Silence(Mutex<HashMap<(String, String), Instant>>);

impl Silence {
    fn lasts(&self, backend: &(String, String)) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(backend).is_some_and(|until| *until > Instant::now())
    }

    fn note(&self, backend: (String, String)) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, until| *until > Instant::now());
        known.insert(backend, Instant::now() + PEACE);
    }
}

impl Engine {
    /// Whether the backend says that it lives, in bounded time.
    pub(crate) async fn ask_life(&self, stored: &Stored, handle: &Handle) -> Result<Life> {
        let sandbox = &stored.record.sandbox;
        let backend = (sandbox.extension.clone(), sandbox.host.clone());
        let silent = || {
            Error::new(ErrorKind::Unreachable, format!("{} does not answer", sandbox.extension))
                .with_hint("what is shown is what was known last; it is asked again in a while")
        };
        if self.inner.silence.lasts(&backend) {
            return Err(silent());
        }
        let limit = if sandbox.host == LOCAL { HERE } else { ELSEWHERE };
        match tokio::time::timeout(limit, self.life(&stored.record, handle)).await {
            Ok(answer) => answer,
            Err(_) => {
                self.inner.silence.note(backend);
                Err(silent())
            }
        }
    }
}
