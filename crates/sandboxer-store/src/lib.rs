//! What is remembered: sandboxes, their events, what is still to be delivered, idempotency keys and API keys.
//!
//! One trait, [`Store`], with SQLite as its embedded implementation. Several processes may have the same file open.
//! Only the engine calls it; extensions never see it.

mod ledger;
mod memory;
mod model;
mod outgoing;
mod store;

pub mod sqlite;

pub use ledger::*;
pub use memory::*;
pub use model::*;
pub use outgoing::*;
pub use sqlite::{SqliteStore, StoreOptions};
pub use store::Store;
