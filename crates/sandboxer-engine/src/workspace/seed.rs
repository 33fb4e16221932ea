//! What a workspace starts with: the source, packed before the backend is asked.

use std::path::{Path, PathBuf};

use sandboxer_core::sandbox::SandboxRecord;
use sandboxer_core::{Result, SandboxId, State};
use sandboxer_workspace::{Cache, Rules};

use super::mirror::Mirror;
use super::{blocking, io_error, mirrored};
use crate::{Engine, fault};

/// A packed source, removed again when the backend has taken it.
pub(crate) struct Seed(PathBuf);

impl Seed {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Engine {
    /// Packs the source of a sandbox that has one, and notes what a mirror starts from.
    pub(crate) async fn seed(&self, record: &SandboxRecord) -> Result<Option<Seed>> {
        let Some(source) = record.spec.workspace_source.clone().map(PathBuf::from) else { return Ok(None) };
        let places = self.places()?.clone();
        let (id, is_mirror) = (record.id(), mirrored(record).is_some());
        let seed = blocking(move || {
            make_private(&places.staging())?;
            let seed = Seed(places.seed(id));
            let rules = Rules::workspace();
            // The manifest first: what changes before it is packed is then seen as a change, not missed.
            if is_mirror {
                let scan = sandboxer_workspace::scan(&source, &rules, &Cache::default())?;
                Mirror::create(&places.mirror(id), scan)?;
            }
            let packed = sandboxer_workspace::pack(&source, &rules, &seed.0)?;
            if packed.omitted.count > 0 {
                let first = packed.omitted.named.first().map(|left| format!("{}: {}", left.path, left.why.text()));
                tracing::warn!(sandbox = %id, count = packed.omitted.count, first, "left out of the workspace");
            }
            Ok(seed)
        })
        .await?;
        fault::point("engine.create.after_seed");
        Ok(Some(seed))
    }

    /// Removes seeds and mirrors whose sandbox no longer needs them. A row is written before either is made.
    pub(crate) async fn sweep_workspaces(&self) -> Result<()> {
        let Ok(places) = self.places() else { return Ok(()) };
        for (path, id) in named_after_sandboxes(&places.staging()) {
            let stored = self.inner.store.get(id).await?;
            let in_use = stored.is_some_and(|stored| {
                matches!(stored.record.state(), State::Requested | State::Provisioning)
            });
            if !in_use {
                let _ = std::fs::remove_file(path);
            }
        }
        for (_, id) in named_after_sandboxes(&places.mirrors()) {
            let stored = self.inner.store.get(id).await?;
            if stored.is_none_or(|stored| stored.record.state() == State::Destroyed) {
                self.forget_workspace(id);
            }
        }
        Ok(())
    }
}

fn named_after_sandboxes(folder: &Path) -> Vec<(PathBuf, SandboxId)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let id = entry.path().file_stem()?.to_str()?.parse().ok()?;
            Some((entry.path(), id))
        })
        .collect()
}

/// A folder for its owner alone: it holds other people's files.
pub(super) fn make_private(folder: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|source| io_error(format!("the folder {} cannot be made", folder.display()), source))
}
