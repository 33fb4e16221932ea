//! Unit tests of the profile modules, by what they test.

mod merging;
mod mistakes;
mod names;
mod properties;
mod rules;

use super::*;
use crate::error::Error;

const HEAD: &str = "id: profile.t\nversion: \"1.0.0\"\n";

/// `body` below a valid id and version, so that it starts on line 3.
fn file(body: &str) -> Result<ProfileFile, Error> {
    ProfileFile::parse(&format!("{HEAD}{body}"), "t.yaml")
}

fn resolved(body: &str) -> Result<Profile, Error> {
    resolve([&file(body)?])
}

/// Message and hint on two lines, as a user reads them.
fn shown<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::InvalidProfile);
    match error.hint() {
        Some(hint) => format!("{error}\nhint: {hint}"),
        None => error.to_string(),
    }
}
