//! One profile file as it was written: typed, with every key known, and not yet merged with what it extends.

use std::sync::Arc;

use super::node::{Node, Path, refuse_source};
use super::reference::{ID_HINT, ProfileRef, Version, check_id};
use super::schema::Profile;
use super::{decode, yaml};
use crate::error::{Error, Result};
use crate::suggest::printable;

/// The largest profile file that is read.
pub const MAX_FILE_BYTES: usize = 256 * 1024;

/// A parsed file. Only `id` and `version` must be there; the rest may come from what it `extends`.
#[derive(Clone, Debug)]
pub struct ProfileFile {
    pub id: String,
    pub version: Version,
    pub extends: Option<ProfileRef>,
    pub(super) source: Arc<str>,
    pub(super) root: Node,
}

impl ProfileFile {
    /// Reads `text`; errors begin with `source` and, wherever there is one, the line and column.
    pub fn parse(text: &str, source: &str) -> Result<Self> {
        if text.len() > MAX_FILE_BYTES {
            return Err(refuse_source(
                source,
                format!("the file is larger than {} KiB", MAX_FILE_BYTES / 1024),
            ));
        }
        let source: Arc<str> = Arc::from(source);
        let root = yaml::read(text, &source)?;
        if root.is_null() {
            return Err(root
                .place
                .refuse("the file is empty")
                .with_hint("a profile needs at least `id` and `version`"));
        }
        let profile = decode::profile(&root)?;
        let fault = |key: &str, message: String| fault(&root, &source, &Path::of(&[key]), message);
        if let Err(why) = check_id(&profile.id) {
            let message = format!("`{}` is not an id: {why}", printable(&profile.id));
            return Err(fault("id", message).with_hint(ID_HINT));
        }
        let version = profile.version.parse().map_err(|why: Error| {
            fault("version", why.to_string()).with_hint(why.hint().unwrap_or_default())
        })?;
        let extends = profile
            .extends
            .as_deref()
            .map(ProfileRef::parse)
            .transpose()
            .map_err(|why| fault("extends", why.to_string()).with_hint(why.hint().unwrap_or_default()))?;
        Ok(Self { id: profile.id, version, extends, source, root })
    }

    /// The name of the source that it was read from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// An error that points at the `extends` key of this file.
    pub fn refuse_extends(&self, message: &str) -> Error {
        fault(&self.root, &self.source, &Path::of(&["extends"]), message.to_owned())
    }
}

impl Profile {
    /// The profile as a file that parses and resolves to itself.
    pub fn to_yaml(&self) -> Result<String> {
        yaml::write(self)
    }
}

/// An error at the value of `path`, or about the source as a whole where nothing was written there.
pub(super) fn fault(root: &Node, source: &str, path: &Path, message: String) -> Error {
    root.place_of(path).map_or_else(|| refuse_source(source, &message), |place| place.refuse(&message))
}
