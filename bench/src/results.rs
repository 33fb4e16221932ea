//! Everything that one run found out, as JSON.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use crate::burst::Burst;
use crate::contender::Table;
use crate::extensions::Stacks;
use crate::memory::Level;
use crate::payments::Figures;
use crate::stats::Summary;
use crate::verdict::Verdict;

/// What was not measured is empty.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) startup: Table,
    pub(crate) bursts: Vec<Burst>,
    pub(crate) memory: Vec<Level>,
    pub(crate) api: Table,
    /// How many sandboxes the full store had.
    pub(crate) stored: usize,
    pub(crate) extensions: Table,
    /// Compose stacks that were started at once.
    pub(crate) stacks: Option<Stacks>,
    /// How many files the mirrored folder had.
    pub(crate) mirrored: usize,
    pub(crate) payments: Table,
    /// What the measuring programs of the crates found.
    pub(crate) figures: Figures,
    /// Peers that were left out, and why.
    pub(crate) skipped: Vec<String>,
}

impl Results {
    pub(crate) fn startup(&self, name: &str) -> Option<Summary> {
        self.startup.get(name).map(crate::stats::Samples::summary)
    }

    pub(crate) fn api(&self, name: &str) -> Option<Summary> {
        self.api.get(name).map(crate::stats::Samples::summary)
    }

    pub(crate) fn extensions(&self, name: &str) -> Option<Summary> {
        self.extensions.get(name).map(crate::stats::Samples::summary)
    }

    pub(crate) fn payments(&self, name: &str) -> Option<Summary> {
        self.payments.get(name).map(crate::stats::Samples::summary)
    }

    pub(crate) fn to_json(&self, verdicts: &[Verdict]) -> Map<String, Value> {
        let table = |table: &Table| -> Value {
            table
                .iter()
                .map(|(name, samples)| ((*name).to_owned(), samples.summary().to_json()))
                .collect::<Map<_, _>>()
                .into()
        };
        let mut out = Map::new();
        out.insert("startup".into(), table(&self.startup));
        out.insert("burst".into(), self.bursts.iter().map(Burst::to_json).collect());
        out.insert("memory".into(), self.memory.iter().map(Level::to_json).collect());
        out.insert("api".into(), json!({ "stored": self.stored, "measured": table(&self.api) }));
        out.insert(
            "extensions".into(),
            json!({
                "measured": table(&self.extensions),
                "stacks": self.stacks.as_ref().map(Stacks::to_json),
                "mirrored_files": self.mirrored,
            }),
        );
        out.insert("payments".into(), json!({ "measured": table(&self.payments), "figures": self.figures }));
        out.insert("skipped".into(), json!(self.skipped));
        out.insert("verdicts".into(), verdicts.iter().map(Verdict::to_json).collect());
        out
    }
}

/// Writes the document under its time and as the latest one.
pub(crate) fn write(folder: &Path, document: &Value) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let text = serde_json::to_string_pretty(document)? + "\n";
    let name = jiff::Timestamp::now().strftime("%Y-%m-%dT%H%M%SZ.json").to_string();
    std::fs::write(folder.join("latest.json"), &text)?;
    let file = folder.join(name);
    std::fs::write(&file, text)?;
    Ok(file)
}
