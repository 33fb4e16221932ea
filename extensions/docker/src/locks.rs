//! One lock per tag within this process.
//!
//! It makes provisions of one tag wait for each other, and a teardown wait for a call that is already with the engine:
//! somebody who gives up a provision cannot take a request back, so the request is finished in a task that holds the lock.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use sandboxer_core::{Error, ErrorKind, Result};
use tokio::sync::OwnedMutexGuard;

type Lock = tokio::sync::Mutex<()>;

static LOCKS: LazyLock<Mutex<BTreeMap<String, Weak<Lock>>>> = LazyLock::new(Mutex::default);

/// As long as one clone lives, nobody else has the tag.
pub(crate) type Held = Arc<OwnedMutexGuard<()>>;

pub(crate) async fn hold(tag: &str) -> Held {
    let lock = {
        let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| lock.strong_count() > 0);
        match locks.get(tag).and_then(Weak::upgrade) {
            Some(lock) => lock,
            None => {
                let lock = Arc::new(Lock::new(()));
                locks.insert(tag.to_owned(), Arc::downgrade(&lock));
                lock
            }
        }
    };
    Arc::new(lock.lock_owned().await)
}

/// Runs to its end even if nobody waits for it any more, and holds the tag until then.
pub(crate) async fn finish<T: Send + 'static>(
    held: &Held,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let held = held.clone();
    let task = tokio::spawn(async move {
        let done = work.await;
        drop(held);
        done
    });
    task.await.map_err(|source| {
        Error::new(ErrorKind::Internal, "a call to the docker engine broke off").with_source(source)
    })?
}
