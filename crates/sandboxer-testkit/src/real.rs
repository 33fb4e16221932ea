//! Real components for tests, started by the test itself and stopped when it ends.

pub mod dockerd;
pub mod sshd;
