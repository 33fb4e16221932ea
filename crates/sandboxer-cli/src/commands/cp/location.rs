//! One side of a copy: a path in a sandbox, a path here, or a stream.

use std::path::PathBuf;

use sandboxer_core::{Error, ErrorKind, Result, SandboxId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Sandbox(Inside),
    Local(PathBuf),
    Stdio,
}

/// A path in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inside {
    pub(super) id: SandboxId,
    pub(super) path: String,
}

impl Location {
    /// `ID:path` only where it begins like an id: a local name may contain colons.
    pub(super) fn parse(text: &str) -> Result<Self> {
        if text == "-" {
            return Ok(Self::Stdio);
        }
        match text.split_once(':') {
            Some((id, path)) if id.starts_with(SandboxId::PREFIX) => {
                let path = if path.is_empty() { "." } else { path };
                Ok(Self::Sandbox(Inside { id: id.parse()?, path: path.to_owned() }))
            }
            _ if text.is_empty() => Err(Error::new(ErrorKind::InvalidInput, "an empty path names nothing")),
            _ => Ok(Self::Local(PathBuf::from(text))),
        }
    }
}

impl Inside {
    /// The name that the source has in a folder it is copied into; nothing for `/`, `.` and `..`.
    pub(super) fn base_name(&self) -> Option<&str> {
        let last = self.path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        (!matches!(last, "" | "." | "..")).then_some(last)
    }

    pub(super) fn join(&self, name: &str) -> Self {
        Self { id: self.id, path: format!("{}/{name}", self.path.trim_end_matches('/')) }
    }

    /// `dir/.` means what is in it.
    pub(super) fn means_contents(&self) -> bool {
        self.path.ends_with("/.") || self.path == "."
    }
}

pub(super) fn no_sandbox() -> Error {
    Error::new(ErrorKind::InvalidInput, "neither side names a sandbox")
        .with_hint("write one side as `ID:path`, such as `sbx_01jx…:/work`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_told_apart() {
        let id = SandboxId::generate();
        let Location::Sandbox(inside) = Location::parse(&format!("{id}:/work/a:b")).unwrap() else {
            panic!()
        };
        assert_eq!((inside.id, &*inside.path), (id, "/work/a:b"));
        assert_eq!(inside.base_name(), Some("a:b"));
        assert_eq!(Location::parse("-").unwrap(), Location::Stdio);
        assert_eq!(Location::parse("a:b").unwrap(), Location::Local("a:b".into()));
        assert_eq!(Location::parse("./sbx_x").unwrap(), Location::Local("./sbx_x".into()));
        assert_eq!(Location::parse("sbx_nonsense:/x").unwrap_err().kind(), ErrorKind::SandboxNotFound);
        assert!(Location::parse("").is_err());
    }

    #[test]
    fn names_and_contents() {
        let at = |path: &str| Inside { id: SandboxId::generate(), path: path.into() };
        assert_eq!(at("/a/b/").base_name(), Some("b"));
        assert_eq!(at("/").base_name(), None);
        assert!(at("/a/.").means_contents());
        assert_eq!(at("/a/").join("b").path, "/a/b");
        assert_eq!(at("/").join("b").path, "/b");
    }
}
