//! The documented example in a folder of its own, and small processes that misbehave.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the documentation keeps the example.
pub(crate) const EXAMPLE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/registry/extensions");

/// The example, its files as documented, its sandboxes in a temporary folder.
pub(crate) struct Example {
    folder: tempfile::TempDir,
    pub(crate) manifest: PathBuf,
}

impl Example {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["example.py", "protocol.py"] {
            std::fs::copy(Path::new(EXAMPLE).join(name), folder.path().join(name)).unwrap();
        }
        // The root comes by the command line of a wrapper, because tests share one environment.
        let text = std::fs::read_to_string(Path::new(EXAMPLE).join("example.yaml")).unwrap();
        let root = folder.path().join("root").display().to_string();
        let command = format!("command: [env, EXAMPLE_ROOT={root}, python3, example.py]");
        let text = text.replace("command: [python3, example.py]", &command);
        assert!(text.contains(&root));
        let manifest = folder.path().join("example.yaml");
        std::fs::write(&manifest, text).unwrap();
        Self { folder, manifest }
    }

    /// Folders of sandboxes that are still there, and notes of their ends.
    pub(crate) fn left(&self) -> Vec<String> {
        let root = self.folder.path().join("root");
        let entries = [root.join(".ended"), root].into_iter().flat_map(std::fs::read_dir).flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != ".locks" && name != ".ended").collect()
    }
}

/// Waits until it holds.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
