//! The system calls that no safe library offers, each with its reason. Nothing here decides anything.

pub(crate) mod lock;
pub(crate) mod mount;
pub(crate) mod process;
pub(crate) mod signal;
