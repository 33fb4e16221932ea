//! Side-by-side benchmarks: the built `sandboxer` and its HTTP API against real peers, in one run.
//!
//! A user of the product like any other: it drives the binary and knows nothing of the crates behind it. What is
//! measured and how to read it is in `docs/performance.md`.

mod api;
mod bundle;
mod burst;
mod cleanup;
mod contender;
mod docker;
mod extensions;
mod http;
mod machine;
mod memory;
mod options;
mod ours;
mod payments;
mod peers;
mod report;
mod results;
mod server;
mod startup;
mod stats;
mod verdict;
mod volume;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::json;

use machine::Machine;
use options::{Options, Phase};
use results::Results;
use server::{Server, WarmPool};

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            report::print(options::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            report::note(&format!("{error:#}\n{}", options::USAGE));
            return ExitCode::from(2);
        }
    };
    let outcome = cleanup::watch().and_then(|()| run(&options));
    cleanup::finish();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::note(&format!("the bench broke off: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let machine = Machine::look();
    let temp = temporary_folder()?;
    let mut results = Results::default();
    measure(options, &temp, &mut results)?;
    let verdicts = verdict::of(&results);
    report::print(&report::verdicts(&verdicts));
    report::print(&machine.line());
    for skipped in &results.skipped {
        report::print(&format!("left out: {skipped}"));
    }
    if options.sizes.quick {
        report::print("A quick run: too few samples for its figures to be quoted.");
    }
    let mut document = json!({
        "time": jiff::Timestamp::now().to_string(),
        "quick": options.sizes.quick,
        "machine": machine.to_json(),
        "versions": machine::versions(&options.binary),
    });
    if let Some(fields) = document.as_object_mut() {
        fields.extend(results.to_json(&verdicts));
    }
    let file = results::write(&options.results, &document)?;
    report::note(&format!("written to {}", file.display()));
    Ok(())
}

fn measure(options: &Options, temp: &Path, results: &mut Results) -> Result<()> {
    let sizes = &options.sizes;
    if options.phases.contains(&Phase::Startup) {
        report::note("start and exec, in turns with the peers");
        startup::run(options, temp, results)?;
        report::print(&report::startup(results));
    }
    if options.phases.contains(&Phase::Burst) {
        report::note("bursts");
        let server = Server::start(&options.binary, &temp.join("burst"), WarmPool::Usual)?;
        burst::run(&server, sizes.burst.div_ceil(10)).context("warm-up burst")?;
        for _ in 0..sizes.bursts {
            results.bursts.push(burst::run(&server, sizes.burst)?);
        }
        report::print(&report::bursts(&results.bursts));
    }
    if options.phases.contains(&Phase::Memory) {
        report::note("memory");
        // Warm sandboxes would share their pages with the ones that are looked at, and make them look smaller.
        let server = Server::start(&options.binary, &temp.join("memory"), WarmPool::Off)?;
        results.memory = memory::run(&server, sizes.levels)?;
        report::print(&report::memory(&results.memory));
    }
    if options.phases.contains(&Phase::Api) {
        report::note("the API with a full store");
        results.api = api::run(&options.binary, &temp.join("api"), &sizes.api)?;
        results.stored = sizes.api.stored;
        report::print(&report::api(results));
    }
    if options.phases.contains(&Phase::Extensions) {
        report::note("extensions beside the bare tools");
        extensions::run(options, temp, results)?;
        report::print(&report::extensions(results));
    }
    if options.phases.contains(&Phase::Payments) {
        report::note("routes, money and events");
        payments::run(options, &temp.join("payments"), results)?;
        report::print(&report::payments(results));
    }
    Ok(())
}

/// A folder for everything that the run makes, removed as the last thing.
fn temporary_folder() -> Result<PathBuf> {
    let folder = std::env::temp_dir().join(cleanup::name());
    std::fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let doomed = folder.clone();
    // Not dropped before the end: what lives in it is stopped first.
    std::mem::forget(cleanup::on_end(move || {
        cleanup::remove_cgroups();
        if let Err(error) = std::fs::remove_dir_all(&doomed) {
            report::note(&format!("{} could not be removed: {error}", doomed.display()));
        }
    }));
    Ok(folder)
}
