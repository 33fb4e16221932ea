//! The use cases: create to destroy, exec, reap, reconcile, outbox
