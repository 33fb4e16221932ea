//! What the extension can be told, and what runs behind it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandboxer_core::env_vars::EnvVars;
use sandboxer_core::{Error, ErrorKind, Extension, Result};

use crate::behaviour::Behaviour;

/// How the provider behaves, unless the environment or a request says otherwise.
const BEHAVIOUR_FILE: &str = "behaviour.toml";
/// More than this is no file of ours.
const LONGEST_FILE: u64 = 65_536;

/// Who runs the sandboxes.
#[derive(Clone)]
pub enum Backing {
    /// Another extension. What it keeps must lie apart from what it keeps for itself: the tags are the same.
    Extension(Arc<dyn Extension>),
    /// Nobody: a sandbox is a note, and no command can be run in it.
    None,
}

/// Where the provider keeps what it knows, the words of the environment, and what runs behind. No secret is in it.
#[derive(Clone)]
pub struct Settings {
    pub folder: PathBuf,
    pub backing: Backing,
    words: String,
}

impl Settings {
    /// `words` are those of the environment. `backing=none` in them or in the file leaves the backing out.
    pub fn new(folder: impl Into<PathBuf>, words: Option<String>, backing: Backing) -> Result<Self> {
        let mut out = Self { folder: folder.into(), backing, words: words.unwrap_or_default() };
        let mut behaviour = Behaviour::default();
        // A file that cannot be read is told by whatever uses the extension, and does not stop everything else.
        if let Ok(Some(text)) = out.file() {
            let _ = behaviour.apply_toml(&text);
        }
        out.apply_words(&mut behaviour)?;
        if behaviour.nothing_behind {
            out.backing = Backing::None;
        }
        Ok(out)
    }

    /// Where a native backing keeps its sandboxes, so that it never meets those of `ext.native`.
    pub fn native_root(folder: &Path) -> PathBuf {
        folder.join("native")
    }

    /// As the file, the environment and this request say now.
    pub(crate) fn behaviour(&self, request: Option<&str>) -> Result<Behaviour> {
        let mut behaviour = Behaviour::default();
        if let Some(text) = self.file()? {
            let path = self.folder.join(BEHAVIOUR_FILE);
            behaviour.apply_toml(&text).map_err(|error| within(error, &path.display().to_string()))?;
        }
        self.apply_words(&mut behaviour)?;
        if let Some(words) = request {
            behaviour.apply_request(words).map_err(|error| within(error, "the input `stub`"))?;
        }
        Ok(behaviour)
    }

    fn apply_words(&self, behaviour: &mut Behaviour) -> Result<()> {
        behaviour.apply(&self.words).map_err(|error| within(error, EnvVars::SANDBOXER_STUB))
    }

    /// The file, which need not be there.
    fn file(&self) -> Result<Option<String>> {
        use std::io::Read as _;
        let path = self.folder.join(BEHAVIOUR_FILE);
        let unreadable = |source| {
            Error::new(ErrorKind::InvalidInput, format!("{} cannot be read", path.display()))
                .with_source(source)
        };
        let file = match std::fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        };
        let mut text = String::new();
        file.take(LONGEST_FILE + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > LONGEST_FILE {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("{} is longer than {LONGEST_FILE} bytes", path.display()),
            ));
        }
        Ok(Some(text))
    }
}

/// Says where the words come from.
fn within(error: Error, place: &str) -> Error {
    let out = Error::new(error.kind(), format!("{place}: {error}"));
    let out = match error.hint() {
        Some(hint) => out.with_hint(hint),
        None => out,
    };
    match std::error::Error::source(&error) {
        Some(source) => out.with_hint(format!("{source}")),
        None => out,
    }
}
