//! Files inside a sandbox, as every backend reports them.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Other,
}

/// One entry. Names that are not UTF-8 are shown with replacement characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FileInfo {
    pub name: String,
    pub path: String,
    pub kind: FileKind,
    pub size: u64,
    /// Permission bits, as four octal digits.
    pub mode: String,
    pub uid: u32,
    pub gid: u32,
    #[schema(value_type = String, format = DateTime)]
    pub modified_at: jiff::Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_target: Option<String>,
}

/// A path inside a sandbox: absolute, or relative to the working directory of the profile.
pub fn validate_path(path: &str) -> Result<()> {
    let refuse = |why: &str| {
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!("`{}` is not a usable path: {why}", crate::suggest::printable(path)),
        ))
    };
    if path.is_empty() {
        return refuse("it is empty");
    }
    if path.len() > 4_095 {
        return refuse("it is longer than 4095 bytes");
    }
    if path.contains('\0') {
        return refuse("it contains a NUL character");
    }
    Ok(())
}
