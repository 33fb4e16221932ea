//! What a sync did, as everybody sees it.

use sandboxer_core::SandboxId;
use sandboxer_workspace::{Change, Omissions, Plan};
use serde::{Deserialize, Serialize};

/// How many paths of each kind are named.
const NAMED: usize = 200;

/// What one sync did, or with `dry_run` would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SyncReport {
    pub sandbox_id: SandboxId,
    pub dry_run: bool,
    /// The folder on the machine that runs the engine.
    pub folder: String,
    pub uploaded: Paths,
    pub downloaded: Paths,
    pub deleted_local: Paths,
    pub deleted_in_sandbox: Paths,
    /// Both sides changed: neither was touched.
    pub conflicts: Vec<ConflictView>,
    /// What was left alone, with the reason.
    pub left_out: Vec<LeftOutView>,
    pub left_out_count: u64,
}

/// How many, and the first of them by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Paths {
    pub count: u64,
    pub named: Vec<String>,
}

impl Paths {
    fn of(paths: &[String]) -> Self {
        Self { count: paths.len() as u64, named: paths.iter().take(NAMED).cloned().collect() }
    }
}

/// One path that changed on both sides since they last agreed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ConflictView {
    pub path: String,
    /// `added`, `modified`, `deleted` or `unchanged`, on this side.
    pub local: String,
    /// The same in the sandbox.
    pub sandbox: String,
    /// Where a copy of the sandbox's version is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LeftOutView {
    pub path: String,
    pub reason: String,
}

impl SyncReport {
    pub(super) fn new(sandbox_id: SandboxId, folder: String, plan: &Plan, dry_run: bool) -> Self {
        let conflicts = plan.conflicts.iter().map(|conflict| ConflictView {
            path: conflict.path.clone(),
            local: word(conflict.local).to_owned(),
            sandbox: word(conflict.remote).to_owned(),
            kept: None,
        });
        Self {
            sandbox_id,
            dry_run,
            folder,
            uploaded: Paths::of(&plan.upload),
            downloaded: Paths::of(&plan.download),
            deleted_local: Paths::of(&plan.delete_local),
            deleted_in_sandbox: Paths::of(&plan.delete_remote),
            conflicts: conflicts.collect(),
            left_out: Vec::new(),
            left_out_count: 0,
        }
    }

    pub(super) fn leave_out(&mut self, omitted: &Omissions) {
        self.left_out_count += omitted.count;
        let room = NAMED.saturating_sub(self.left_out.len());
        let named = omitted.named.iter().take(room);
        self.left_out.extend(
            named.map(|left| LeftOutView { path: left.path.clone(), reason: left.why.text().to_owned() }),
        );
    }
}

fn word(change: Change) -> &'static str {
    match change {
        Change::Unchanged => "unchanged",
        Change::Added => "added",
        Change::Modified => "modified",
        Change::Deleted => "deleted",
    }
}
