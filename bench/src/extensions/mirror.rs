//! A folder of many small files, mirrored into a native sandbox: the first time, and after one change.

use std::path::Path;

use anyhow::Result;

use crate::contender::{Table, timed};
use crate::options::Options;
use crate::results::Results;
use crate::server::{Cli, TTL};

pub(super) fn run(options: &Options, folder: &Path, results: &mut Results) -> Result<()> {
    let (files, syncs) = (options.sizes.extensions.files, options.sizes.extensions.syncs);
    let tree = folder.join("tree");
    for number in 0..files {
        let below = tree.join(format!("part-{:02}", number % 97));
        if number < 97 {
            std::fs::create_dir_all(&below)?;
        }
        std::fs::write(below.join(format!("file-{number}.txt")), format!("line {number}\n").repeat(40))?;
    }
    let cli = Cli::new(&options.binary, &folder.join("home"));
    let _guard = cli.guard();
    let source = tree.display().to_string();
    let create = [
        "create",
        "--profile",
        "profile.agent-dev",
        "--ttl",
        TTL,
        "--workspace",
        &source,
        "--workspace-mode",
        "mirror",
    ];
    let mut table = Table::new();
    let (id, first) = timed(|| cli.run(&create))?;
    table.entry("mirror_first").or_default().push(first);
    for round in 0..syncs {
        std::fs::write(tree.join("part-13/file-13.txt"), format!("changed in round {round}\n"))?;
        let (_, took) = timed(|| cli.run(&["sync", &id]))?;
        table.entry("mirror_sync").or_default().push(took);
    }
    cli.run(&["destroy", &id])?;
    results.extensions.extend(table);
    results.mirrored = files;
    Ok(())
}
