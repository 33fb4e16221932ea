//! Real components for tests, started by the test itself and stopped when it ends.

pub mod dockerd;
pub mod hosts;
pub mod sshd;

pub use hosts::FixedHosts;

/// What a test needs of the machine it runs on. Where everything must be there (`CI` is set) a missing component fails
/// the test; on a user's machine the test is skipped and says why.
#[allow(clippy::print_stderr, reason = "the reason of a skip is for whoever runs the tests")]
pub fn require<T>(component: Result<T, String>) -> Option<T> {
    match component {
        Ok(component) => Some(component),
        Err(reason) if std::env::var_os("CI").is_some_and(|ci| !ci.is_empty()) => {
            panic!("this machine must have it all: {reason}")
        }
        Err(reason) => {
            eprintln!("skipped: {reason}");
            None
        }
    }
}
