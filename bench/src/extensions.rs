//! The way through an extension beside the bare tool behind it: docker, ssh, compose, and a mirrored folder.

mod compose;
mod docker;
mod mirror;
mod ssh;

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::options::Options;
use crate::results::Results;

pub(crate) use compose::Stacks;

/// How much of everything.
pub(crate) struct Sizes {
    pub(crate) docker: usize,
    pub(crate) ssh: usize,
    pub(crate) stacks: usize,
    pub(crate) files: usize,
    pub(crate) syncs: usize,
}

type Part = fn(&Options, &Path, &mut Results) -> Result<()>;

/// Each part alone: one that does not work here is left out and named.
pub(crate) fn run(options: &Options, temp: &Path, results: &mut Results) -> Result<()> {
    let parts: [(&str, Part); 4] =
        [("docker", docker::run), ("ssh", ssh::run), ("compose", compose::run), ("mirror", mirror::run)];
    for (name, part) in parts {
        crate::report::note(name);
        let folder = temp.join("extensions").join(name);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        if let Err(error) = part(options, &folder, results) {
            let said = format!("{name}: {error:#}");
            crate::report::note(&format!("going on without {said}"));
            results.skipped.push(said);
        }
    }
    Ok(())
}

/// A folder of profiles with this one in it.
fn profile(folder: &Path, name: &str, text: &str) -> Result<String> {
    let profiles = folder.join("profiles");
    std::fs::create_dir_all(&profiles)?;
    std::fs::write(profiles.join(format!("{name}.yaml")), text)?;
    Ok(profiles.display().to_string())
}
