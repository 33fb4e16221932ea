//! A shell on a host, here or over SSH: commands, files, deadlines that need nobody.
//!
//! [`Remote`] is the way to one host. Over SSH it uses the OpenSSH client with one multiplexed connection per host,
//! which outlives the process that made it; the host needs a POSIX shell, coreutils or busybox, and `/proc`.

mod bootstrap;
mod command;
pub mod failure;
mod files;
pub mod guard;
mod local;
mod marks;
mod quote;
mod remote;
mod session;
mod ssh;
mod transport;
mod tty;
mod within;

pub use command::{Command, Output, Stdin};
pub use files::Files;
pub use guard::Guard;
pub use quote::quote;
pub use remote::Remote;
pub use within::Entry;
