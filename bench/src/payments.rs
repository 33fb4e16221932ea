//! Routes, money and events out: what the control plane costs by itself, on a provider that takes no time.
//!
//! The creates go over HTTP like everybody's. The rest are the measuring programs of the crates, run as they are: each
//! prints its figures as lines `figure NAME VALUE`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::contender::{Contender, Record, take_turns};
use crate::options::Options;
use crate::results::Results;
use crate::server::{Api, Cli, Server, WarmPool};

/// Figures of the measuring programs, by name.
pub(crate) type Figures = BTreeMap<String, f64>;

/// A provider that answers at once and runs nothing.
const AT_ONCE: &str = "backing=none,latency=0ms";

pub(crate) struct Sizes {
    pub(crate) creates: usize,
    pub(crate) transfers: usize,
    pub(crate) events: usize,
}

pub(crate) fn run(options: &Options, temp: &Path, results: &mut Results) -> Result<()> {
    let sizes = &options.sizes.payments;
    std::fs::create_dir_all(temp)?;
    let cli = Cli::new(&options.binary, &temp.join("home")).with("SANDBOXER_STUB", AT_ONCE);
    cli.run(&["credits", "add", "1000000"])?;
    let server = Server::start_on(cli, WarmPool::Off)?;
    let mut contenders: Vec<Box<dyn Contender>> = vec![Box::new(Creates { api: server.api()? })];
    results.payments = take_turns(&mut contenders, sizes.creates / 10, sizes.creates)?;
    let parts = [
        ("route", Vec::new()),
        ("ledger", vec![sizes.transfers.to_string()]),
        ("outbox", vec![sizes.events.to_string()]),
    ];
    for (name, args) in parts {
        crate::report::note(name);
        match program(&options.examples.join(name), &args) {
            Ok(figures) => results.figures.extend(figures),
            Err(error) => {
                crate::report::note(&format!("going on without {name}: {error:#}"));
                results.skipped.push(format!("{name}: {error:#}"));
            }
        }
    }
    Ok(())
}

/// A create and a destroy, the create held against the time that any request takes.
struct Creates {
    api: Api,
}

impl Contender for Creates {
    fn name(&self) -> &'static str {
        "creates on a provider that takes no time"
    }

    fn turn(&mut self, record: Record<'_>) -> Result<()> {
        let start = Instant::now();
        self.api.client.get("/healthz")?;
        record("health", start.elapsed());
        let request = json!({ "profile": "profile.saas-stub", "ttl": "10m" });
        let start = Instant::now();
        let sandbox = self.api.create_whole(&request)?;
        record("create", start.elapsed());
        let held = sandbox["quote"]["amount"].as_str().unwrap_or_default();
        ensure!(!held.starts_with("0.00 "), "nothing was held: {sandbox}");
        let id = sandbox["sandbox_id"].as_str().context("a sandbox without an id")?;
        let start = Instant::now();
        self.api.destroy(id)?;
        record("destroy", start.elapsed());
        Ok(())
    }
}

fn program(path: &PathBuf, args: &[String]) -> Result<Figures> {
    let output = Command::new(path)
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", path.display()))?;
    ensure!(output.status.success(), "{} ended with {}", path.display(), output.status);
    let figures = figures(&String::from_utf8_lossy(&output.stdout));
    ensure!(!figures.is_empty(), "{} printed no figures", path.display());
    Ok(figures)
}

fn figures(text: &str) -> Figures {
    let figure = |line: &str| {
        let (name, value) = line.strip_prefix("figure ")?.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_between_other_lines() {
        let found = figures("something\nfigure route_p50_us 12.5\nfigure broken\nfigure x nan nan\n");
        assert_eq!(found, Figures::from([("route_p50_us".into(), 12.5)]));
    }
}
