//! What is noted here about a workspace on another machine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sandboxer_core::extension::Handle;
use sandboxer_core::isolation::{Control, IsolationLevel};
use sandboxer_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::files::{failed, private_folder, replace};
use crate::vm::check_tag;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) tag: String,
    /// The machine's name among the hosts.
    pub(super) vm: String,
    /// The sandbox's folder there; empty until the machine has said it.
    pub(super) folder: String,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) effective: IsolationLevel,
    pub(super) controls: Vec<Control>,
    pub(super) degraded: bool,
    /// Everything was made.
    pub(super) complete: bool,
}

impl Note {
    pub(super) fn new(tag: &str, vm: &str, variables: BTreeMap<String, String>) -> Self {
        Self {
            tag: tag.to_owned(),
            vm: vm.to_owned(),
            folder: String::new(),
            variables,
            effective: IsolationLevel::Network,
            controls: Vec::new(),
            degraded: false,
            complete: false,
        }
    }

    pub(super) fn workspace(&self) -> String {
        format!("{}/workspace", self.folder)
    }

    pub(super) fn handle(&self) -> Handle {
        Handle {
            tag: self.tag.clone(),
            host: sandboxer_core::host::LOCAL.to_owned(),
            effective: self.effective,
            controls: self.controls.clone(),
            degraded: self.degraded,
            data: serde_json::json!({ "kind": "attached", "vm": self.vm }),
        }
    }
}

/// One file a sandbox.
pub(super) struct Notes {
    root: PathBuf,
}

impl Notes {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    fn path(&self, tag: &str) -> Result<PathBuf> {
        check_tag(tag)?;
        Ok(self.root.join(format!("{tag}.json")))
    }

    pub(super) fn has(&self, tag: &str) -> bool {
        self.path(tag).is_ok_and(|path| path.exists())
    }

    pub(super) fn read(&self, tag: &str) -> Result<Option<Note>> {
        let path = self.path(tag)?;
        match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|source| {
                Error::new(ErrorKind::BackendFailed, format!("{} is damaged", path.display()))
                    .with_source(source)
            }),
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(failed("read", &path, source)),
        }
    }

    pub(super) fn write(&self, note: &Note) -> Result<()> {
        private_folder(&self.root)?;
        let text = serde_json::to_vec(note).map_err(|source| {
            Error::new(ErrorKind::Internal, "a note cannot be written").with_source(source)
        })?;
        replace(&self.path(&note.tag)?, &text)
    }

    pub(super) fn remove(&self, tag: &str) -> Result<()> {
        let path = self.path(tag)?;
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(failed("removed", &path, source))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn all(&self, prefix: &str) -> Result<Vec<Note>> {
        let Ok(entries) = std::fs::read_dir(&self.root) else { return Ok(Vec::new()) };
        let mut tags: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".json").map(str::to_owned))
            .filter(|tag| tag.starts_with(prefix))
            .collect();
        tags.sort();
        Ok(tags.iter().filter_map(|tag| self.read(tag).ok()?).collect())
    }
}
