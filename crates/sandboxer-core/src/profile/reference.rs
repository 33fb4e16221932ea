//! How profiles are named: `profile.agent-dev`, `profile.agent-dev@1.2.0`, and prefixes such as `@1`.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};
use crate::suggest::printable;

/// `MAJOR.MINOR.PATCH`; ordered as numbers, not as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

/// A whole version or the beginning of one: `1.2.0`, `1.2`, `1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VersionReq {
    major: u32,
    minor: Option<u32>,
    patch: Option<u32>,
}

/// A profile by name, with or without a version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProfileRef {
    pub id: String,
    /// Without it the newest version is meant.
    pub version: Option<VersionReq>,
}

fn invalid(what: &str, text: &str, why: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("`{}` is not {what}: {why}", printable(text)))
}

/// One number of a version: no sign, no leading zero.
fn number(part: &str) -> Option<u32> {
    let plain = part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
    if plain { part.parse().ok() } else { None }
}

impl FromStr for VersionReq {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            invalid("a version", text, "one to three numbers with dots between were expected")
                .with_hint("versions are written `1.2.0`; `1.2` and `1` mean the newest that begins so")
        };
        let numbers: Vec<u32> = text.split('.').map(number).collect::<Option<_>>().ok_or_else(wrong)?;
        match numbers[..] {
            [major] => Ok(Self { major, minor: None, patch: None }),
            [major, minor] => Ok(Self { major, minor: Some(minor), patch: None }),
            [major, minor, patch] => Ok(Self { major, minor: Some(minor), patch: Some(patch) }),
            _ => Err(wrong()),
        }
    }
}

impl FromStr for Version {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse() {
            Ok(VersionReq { major, minor: Some(minor), patch: Some(patch) }) => {
                Ok(Self { major, minor, patch })
            }
            _ => Err(invalid("a version", text, "MAJOR.MINOR.PATCH was expected")
                .with_hint("write it as `version: \"1.0.0\"`")),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl fmt::Display for VersionReq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.major)?;
        for part in [self.minor, self.patch].into_iter().flatten() {
            write!(f, ".{part}")?;
        }
        Ok(())
    }
}

impl VersionReq {
    pub fn matches(self, version: Version) -> bool {
        self.major == version.major
            && self.minor.is_none_or(|minor| minor == version.minor)
            && self.patch.is_none_or(|patch| patch == version.patch)
    }

    /// Whether it names one version and not the beginning of several.
    pub fn is_exact(self) -> bool {
        self.patch.is_some()
    }
}

impl ProfileRef {
    /// `profile.x`, `profile.x@1.2.0`, `profile.x@1.2` or `profile.x@1`.
    pub fn parse(text: &str) -> Result<Self> {
        let (id, version) = match text.split_once('@') {
            Some((id, version)) => (id, Some(version.parse()?)),
            None => (text, None),
        };
        check_id(id).map_err(|why| {
            let error = invalid("the name of a profile", text, why);
            if id.starts_with("profile.") {
                error.with_hint(ID_HINT)
            } else {
                error.with_hint(format!("names begin with `profile.`: `profile.{}`?", printable(text)))
            }
        })?;
        Ok(Self { id: id.to_owned(), version })
    }

    pub fn matches(&self, id: &str, version: Version) -> bool {
        self.id == id && self.version.is_none_or(|wanted| wanted.matches(version))
    }
}

impl FromStr for ProfileRef {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl fmt::Display for ProfileRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)?;
        self.version.map_or(Ok(()), |version| write!(f, "@{version}"))
    }
}

pub(super) const ID_HINT: &str =
    "an id is `profile.` and a name of lower-case letters, digits, `-` and `.`, such as `profile.agent-dev`";

/// Why `id` cannot be the id of a profile.
pub(super) fn check_id(id: &str) -> Result<(), &'static str> {
    check_prefixed(id, "profile.")
}

/// Why `id` is not `prefix` and a name of at most 63 lower-case letters, digits, `-` and `.`.
pub(super) fn check_prefixed(id: &str, prefix: &'static str) -> Result<(), &'static str> {
    let Some(name) = id.strip_prefix(prefix) else {
        return Err(if prefix == "ext." {
            "it does not begin with `ext.`"
        } else {
            "it does not begin with `profile.`"
        });
    };
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    match name.as_bytes() {
        [] => Err("the name after the dot is missing"),
        bytes if bytes.len() > 63 => Err("the name is longer than 63 characters"),
        [first, ..] if !plain(*first) => Err("the name does not begin with a lower-case letter or a digit"),
        [_, rest @ ..] if !rest.iter().all(|byte| plain(*byte) || matches!(byte, b'-' | b'.')) => {
            Err("the name has a character other than lower-case letters, digits, `-` and `.`")
        }
        _ => Ok(()),
    }
}
