//! Extensions in processes of their own: any executable that speaks the contract as JSON lines over stdio.
//!
//! A manifest (`extensions/<name>.yaml` in a registry folder) says what it is called, what it can do and how it is
//! started. The process is started when something is asked of it, once, and again after it broke; what it says is
//! checked before anybody relies on it. The whole protocol is in `docs/extension-sdk.md`.

mod backend;
mod call;
mod connection;
mod exec;
mod keeper;
mod lines;
mod manifest;
mod params;
mod streams;
mod wire;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandboxer_core::{Error, Extension};

pub use backend::ProcessExtension;
pub use manifest::{Manifest, Timeouts};

/// The version of the protocol.
pub const PROTOCOL: u32 = 1;

/// Every extension that the manifests below these registry folders name, and every manifest that cannot be used.
///
/// Of two with one id the later folder's wins. A folder that is not there has none. Nothing is started.
pub fn load(folders: &[PathBuf]) -> (Vec<Arc<dyn Extension>>, Vec<Error>) {
    let mut found: Vec<Manifest> = Vec::new();
    let mut problems = Vec::new();
    for folder in folders {
        for file in manifests(&folder.join("extensions")) {
            if is_built_in(&file) {
                continue;
            }
            match Manifest::read(&file) {
                Ok(manifest) => {
                    found.retain(|other| other.id != manifest.id);
                    found.push(manifest);
                }
                Err(problem) => problems.push(problem),
            }
        }
    }
    let extensions = found.into_iter().map(|manifest| Arc::new(ProcessExtension::new(manifest)) as _);
    (extensions.collect(), problems)
}

/// An entry of the project's own registry: it describes what the binary brings, and names no command.
fn is_built_in(file: &Path) -> bool {
    let small = std::fs::metadata(file).is_ok_and(|about| about.len() <= manifest::MAX_BYTES);
    let text = if small { std::fs::read_to_string(file) } else { return false };
    text.is_ok_and(|text| text.lines().any(|line| line == "built_in: true"))
}

fn manifests(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml"));
    files.sort();
    files
}
