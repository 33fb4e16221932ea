//! The vocabulary of sand-boxer and its rules, without any input or output.
//!
//! Everything else depends on this crate and it depends on nothing of ours: no clock, no disk, no network.
//! Time comes in as an argument, text comes in as a string, and what goes out is a value or an [`Error`].

pub mod actor;
pub mod bill;
pub mod capability;
pub mod duration;
pub mod env_vars;
pub mod error;
pub mod event;
pub mod exec;
pub mod extension;
pub mod files;
pub mod hash;
pub mod host;
pub mod id;
pub mod isolation;
pub mod ledger;
pub mod lifecycle;
pub mod money;
pub mod page;
pub mod placement;
pub mod price;
pub mod profile;
pub mod request;
pub mod route;
pub mod sandbox;
pub mod snapshot;
pub mod spec;
pub mod suggest;
pub mod tariff;

pub use actor::{Actor, Consumer};
pub use capability::Capability;
pub use duration::Dur;
pub use error::{Class, Error, ErrorKind, Result, Retry};
pub use extension::{Extension, Registry};
pub use host::{Host, HostDirectory};
pub use id::{EventId, ExecId, KeyId, SandboxId, SnapshotId, WebhookId};
pub use lifecycle::State;
pub use money::Money;
pub use sandbox::Sandbox;
pub use snapshot::Snapshot;
